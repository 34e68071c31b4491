"""Manifests of tests: their sources and their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apiext.testing.documents import read
from apiext.testing.server import Server, ServerNotReady


def manifest(kind: str, name: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name or kind.lower()}}


def kinds(source: Any) -> list[str]:
    return [found["kind"] for found in read(source)]


def test_definitions_and_namespaces_come_first() -> None:
    given = [manifest("Widget"), manifest("CustomResourceDefinition"), manifest("Gadget"), manifest("Namespace")]
    assert kinds(given) == ["CustomResourceDefinition", "Namespace", "Widget", "Gadget"]


def test_lists_are_split_into_their_items() -> None:
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


SCALARS = """\
apiVersion: v1
kind: A
metadata: {creationTimestamp: 2024-01-01T00:00:00Z}
spec: {since: 2024-01-01, at: 12:30, octal: 0755, big: 1_000, whole: 1.0, truth: yes, text: =, 7: seven}
"""


def test_yaml_scalars_are_read_like_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SCALARS)
    [found] = read(file)
    assert found["metadata"] == {"creationTimestamp": "2024-01-01T00:00:00Z"}
    assert found["spec"] == {
        "since": "2024-01-01",
        "at": "12:30",
        "octal": 493,
        "big": 1000,
        "whole": 1,
        "truth": True,
        "text": "=",
        "7": "seven",
    }
    json.dumps(found)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\r\nkind: A\r\n---\r\napiVersion: v1\r\nkind: B\r\n",
        "--- {apiVersion: v1, kind: A}\n--- # the next\n{apiVersion: v1, kind: B}\n---",
        "\ufeffapiVersion: v1\nkind: A\n--- \nkind: B\napiVersion: v1\ntext: |\n  ---\n  --- a\n...\n",
    ],
)
def test_documents_are_split_at_all_forms_of_markers(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(text.encode())
    assert kinds(file) == ["A", "B"]


def test_yaml_error_names_the_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("apiVersion: v1\nkind: A\n---\nkind: [\n")
    with pytest.raises(ValueError, match=r"wrong\.yaml:4: yaml: line 1: did not find expected node content"):
        read(file)


@pytest.mark.parametrize("text", ["- a\n", "kind: A\n", "apiVersion: v1\n", "just a text\n"])
def test_documents_that_are_not_objects_are_reported_with_their_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"wrong\.yaml: not an object with apiVersion and kind"):
        read(file)
    with pytest.raises(ValueError, match="an object: not an object"):
        read({"kind": "A"})


@pytest.mark.parametrize("items", [5, "text", {"a": {}}])
def test_list_with_invalid_items_is_reported_with_its_file(tmp_path: Path, items: Any) -> None:
    wrong = {"apiVersion": "v1", "kind": "List", "items": items}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match=r"wrong\.json: the items of a List are not a list"):
        read(tmp_path / "wrong.json")
    assert read({**wrong, "items": None}) == []


@pytest.mark.parametrize(
    ("metadata", "says"),
    [({"generateName": "x-"}, "Widget x-: "), ({"name": ""}, "Widget: "), (None, "Widget: "), ([], "Widget: ")],
)
def test_apply_refuses_objects_without_name(metadata: Any, says: str) -> None:
    nobody = Server()  # a wrong server answers that it does not run
    with pytest.raises(ValueError, match=f"^{says}apply needs metadata.name$"):
        nobody.apply([manifest("Widget"), {**manifest("Widget"), "metadata": metadata}])
    with pytest.raises(ServerNotReady):
        nobody.apply(manifest("Widget"))
