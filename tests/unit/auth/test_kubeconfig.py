"""The administrator's kubeconfig replaces that of an earlier start, and no other file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.auth import kubeconfig, limits

OWN = kubeconfig.document(kubeconfig.Access("https://127.0.0.1:6443", b"ca", "token"))


def changed(many: str, **entry: Any) -> dict[str, Any]:
    """Return a kubeconfig of this server with one more entry."""
    found = copy.deepcopy(OWN)  # noqa: TID251 - a test's own document
    found[many].append(entry)
    return found


@pytest.mark.parametrize("access", [kubeconfig.Access("http://a"), kubeconfig.Access("https://a", b"ca", "token")])
def test_kubeconfigs_of_earlier_starts_are_replaced(tmp_path: Path, access: kubeconfig.Access) -> None:
    file = tmp_path / "config"
    kubeconfig.check_replaceable(file)
    kubeconfig.write(file, access)
    kubeconfig.check_replaceable(file)


@pytest.mark.parametrize(
    "content",
    [
        *(changed(many, name="other") for many in ("clusters", "contexts", "users")),
        changed("clusters"),
        OWN | {"kind": "Pod"},
        OWN | {"users": 1},
        OWN | {"users": ["apiext"]},
        {"kind": "Config"},
        [],
        "words",
    ],
    ids=str,
)
def test_kubeconfigs_with_other_content_are_not_replaced(tmp_path: Path, content: Any) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match="it has other content, which would be lost; `apiext kubeconfig merge` adds"):
        kubeconfig.check_replaceable(file)


def test_files_that_are_not_kubeconfigs_are_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "config"
    for content in (b"\xff\xfe", b"a: b: c", yaml.safe_dump(OWN).encode() + b"#" * limits.OWN_KUBECONFIG):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="would be lost"):
            kubeconfig.check_replaceable(file)


def test_an_empty_file_and_a_stream_may_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for file in (tmp_path / "empty", Path("/dev/null"), tmp_path):
        kubeconfig.check_replaceable(file)  # for a directory, the later write fails
