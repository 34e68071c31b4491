"""The files and tests of docs/tutorial.md and of the recipe for pytest.

They are extracted from these pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.http_client import Client
from tests.clients import toolchain
from tests.clients.test_python_families import needed
from tests.support.processes import ROOT, running_server


def write_tutorial_files(directory: Path) -> str:
    """Write the files of the tutorial; return its text."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name, content in re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (directory / name).write_text(content, encoding="utf-8")
    return text


def test_tutorial_object_is_rejected_with_documented_errors(tmp_path: Path) -> None:
    text = write_tutorial_files(tmp_path)
    with running_server(["--insecure", "--port=0", "--store=memory"], tmp_path / "server") as server:
        api = Client(server.url)
        definition = yaml.safe_load((tmp_path / "definition.yaml").read_text())
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).expect(201)
        wrong = yaml.safe_load((tmp_path / "wrong.yaml").read_text())
        for _ in range(100):
            answer = api.post("/apis/example.com/v1/namespaces/default/greetings", wrong)
            if answer.status != 404:
                break
    causes = answer.expect(422)["details"]["causes"]
    for cause in causes:
        assert f"* {cause['field']}: {cause['message']}\n" in text
    assert len(causes) == 2


@pytest.mark.client("kopf")
def test_tutorial_tests_pass(tmp_path: Path) -> None:
    needed("kopf")
    write_tutorial_files(tmp_path)
    for library in ("kubernetes_asyncio", "pykube"):  # the tutorial installs neither of them
        (tmp_path / f"{library}.py").write_text("raise ImportError\n", encoding="utf-8")
    toolchain.succeed(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_greeter.py"],
        tmp_path,
        90,
        {"PYTHONPATH": str(tmp_path)},
    )


@pytest.mark.client("kubernetes")
def test_pytest_recipe_tests_pass(tmp_path: Path) -> None:
    needed("kubernetes")
    bases = tmp_path / "config" / "crd" / "bases"
    bases.mkdir(parents=True)
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (bases / "crontabs.yaml").write_text(page.partition("<<'EOF'\n")[2].partition("EOF\n")[0], encoding="utf-8")
    recipe = (ROOT / "docs" / "recipes" / "test-an-operator-with-pytest.md").read_text(encoding="utf-8")
    module = recipe.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "test_crontab.py").write_text(module, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_crontab.py"]
    toolchain.succeed(command, tmp_path, 90, {"PYTHONPATH": str(ROOT)})
