"""Manifests of tests: where they are read from, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.testing.documents import read


def manifest(kind: str, name: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name or kind.lower()}}


def kinds(source: Any) -> list[str]:
    return [found["kind"] for found in read(source)]


def test_definitions_and_namespaces_come_first() -> None:
    given = [manifest("Widget"), manifest("CustomResourceDefinition"), manifest("Gadget"), manifest("Namespace")]
    assert kinds(given) == ["CustomResourceDefinition", "Namespace", "Widget", "Gadget"]


def test_lists_are_taken_apart() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [manifest("B"), manifest("C")]}
    assert kinds({"apiVersion": "v1", "kind": "List", "items": [manifest("A"), inner]}) == ["A", "B", "C"]
    assert read({"apiVersion": "v1", "kind": "List", "items": None}) == []


def test_files_hold_several_documents_and_directories_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: B\n---\n---\n# nothing\n---\napiVersion: v1\nkind: C\n")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "A"}')
    (tmp_path / "notes.txt").write_text("kind: [")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.yml").write_text("apiVersion: v1\nkind: D\n")
    assert kinds(tmp_path) == ["A", "B", "C"]
    assert kinds([str(tmp_path / "below"), manifest("E")]) == ["D", "E"]


@pytest.mark.parametrize("text", ["- a\n", "kind: A\n", "apiVersion: v1\n", "just a text\n"])
def test_what_is_no_object_is_told_with_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"wrong\.yaml: no object with apiVersion and kind"):
        read(file)
    with pytest.raises(ValueError, match="an object: no object"):
        read({"kind": "A"})
