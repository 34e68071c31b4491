"""The metadata of the package, and the contents of the image."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.processes import ROOT

COPIED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
MAKE = "import setuptools.build_meta as made; print(made.prepare_metadata_for_build_wheel('.'))"


def metadata(directory: Path, repository: str) -> Message:
    """Return the metadata of a wheel of a project without modules."""
    for name in COPIED:
        text = (ROOT / name).read_text(encoding="utf-8")
        (directory / name).write_text(text.replace('repository = ""', f'repository = "{repository}"'), encoding="utf-8")
    (directory / "apiext").mkdir()
    shutil.copy(ROOT / "apiext" / "__init__.py", directory / "apiext")
    done = subprocess.run([sys.executable, "-c", MAKE], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = directory / done.stdout.splitlines()[-1]
    assert (made / "licenses" / "LICENSE").read_text(encoding="utf-8").count("TERMS AND CONDITIONS") == 2
    return Parser().parsestr((made / "METADATA").read_text(encoding="utf-8"))


@pytest.mark.parametrize("repository", ["", "https://git.example.com/apiext"])
def test_package_links_require_repository_address(tmp_path: Path, repository: str) -> None:
    found = metadata(tmp_path, repository)
    description = found.get_payload()
    assert isinstance(description, str)
    assert len(description) > 5000
    assert not re.search(r"\]\((?![a-z]+:|#)", description), "a link without a host"
    urls = dict(it.split(", ", 1) for it in found.get_all("Project-URL", []))
    if repository:
        assert urls["Source"] == repository
        assert f"]({repository}/blob/main/docs/DIFFERENCES.md)" in description
    else:
        assert urls == {}
    assert (found["Name"], found["License-Expression"], found["License-File"]) == ("apiext", "Apache-2.0", "LICENSE")
    assert found["Description-Content-Type"] == "text/markdown"
    assert len(found["Keywords"].split(",")) > 5
    assert "Typing :: Typed" in found.get_all("Classifier", [])


def test_each_dependency_is_locked_with_hashes() -> None:
    """`requirements.lock`, written by `scripts/lock`, matches the dependencies of the project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = {name.lower(): version for name, version in re.findall(r"^([A-Za-z0-9_-]+)==(\S+)", lock, re.M)}
    for dependency in project["dependencies"]:
        name = re.match(r"[A-Za-z0-9-]+", dependency)
        assert name is not None
        assert name[0].lower() in locked, dependency
    parts = re.split(r"^(?=[a-z])", lock, flags=re.M)[1:]
    assert len(parts) == len(locked)
    assert all("--hash=sha256:" in part for part in parts)
    assert "://" not in lock, "it names no index"


def test_dockerfile_copies_existing_files() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ignored = {line.rstrip("/") for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()}
    copied = [name for line in re.findall(r"^COPY (?!--)(.+)$", dockerfile, re.M) for name in line.split()[:-1]]
    assert {"requirements.lock", "setup.py", "LICENSE", "apiext"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name not in ignored
    assert "--require-hashes" in dockerfile
    assert re.findall(r"^FROM (\S+)", dockerfile, re.M) == ["${BASE}", "${BASE}"]
