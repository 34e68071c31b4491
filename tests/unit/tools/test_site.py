"""The site of docs/: files that pages load, and drawings."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import pytest
import yaml

from tests.support.processes import ROOT

HOOKS = ROOT / "scripts" / "site_hooks.py"


@pytest.fixture
def hooks() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", HOOKS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="assets/a.js"></script><link rel="stylesheet" href="../a.css"><img src="a.svg">', []),
        ('<a href="https://example.com/">a link</a><link rel="canonical" href="https://example.com/">', []),
        ('<script src="https://example.com/a.js"></script>', ["https://example.com/a.js"]),
        ('<img src="//example.com/a.png">', ["//example.com/a.png"]),
        ('<link href="http://example.com/a.css" rel="stylesheet">', ["http://example.com/a.css"]),
        ('<link rel="preconnect" href="https://fonts.example.com">', ["https://fonts.example.com"]),
        ('<pre class="mermaid"><code>flowchart TB</code></pre>', ["a drawing by Mermaid"]),
        ("<pre>&lt;script src=https://example.com/&gt;</pre>", []),
    ],
)
def test_elsewhere_finds_resources_of_other_hosts(hooks: types.ModuleType, page: str, found: list[str]) -> None:
    assert hooks.elsewhere(page) == found


def test_mermaid_drawing_becomes_svg_file_of_its_page(hooks: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def render(text: str) -> types.SimpleNamespace:
        drawn.append(text)
        return types.SimpleNamespace(svg=lambda: "<svg/>")

    def generated(config: object, path: str, content: str) -> tuple[str, str]:
        return path, content

    monkeypatch.setitem(sys.modules, "mermaidx", types.SimpleNamespace(render=render))
    structure = types.SimpleNamespace(File=types.SimpleNamespace(generated=generated))
    for name, module in (("mkdocs", None), ("mkdocs.structure", None), ("mkdocs.structure.files", structure)):
        monkeypatch.setitem(sys.modules, name, module or types.SimpleNamespace())
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="recipes/rbac.md"))
    files: list[tuple[str, str]] = []
    told = hooks.on_page_markdown("A\n\n```mermaid\nflowchart TB\n```\n\n```sh\nls\n```\n", page, None, files)
    assert drawn == ["flowchart TB\n"]
    assert files == [("recipes/rbac-3.svg", "<svg/>")]
    assert told.startswith("A\n\n![Drawing](rbac-3.svg){")
    assert told.endswith("\n\n```sh\nls\n```\n")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1. a\n\n   ```sh\n   ls\n   ```\n\n2. b", "1. a\n\n    ```sh\n    ls\n    ```\n\n2. b"),
        ("1. a\n   more\n\n   b\n\nc\n\n   d", "1. a\n    more\n\n    b\n\nc\n\n   d"),
        ("- a\n\n  b\n  - c\n\n    d", "- a\n\n    b\n    - c\n\n      d"),
        ("1. a\n\n   b\n2. c\n3. d", "1. a\n\n    b\n\n2. c\n3. d"),
        ("10. a\n\n    b", "10. a\n\n    b"),
        ("- a\nlazy\n\n  b", "- a\nlazy\n\n    b"),
        ("```yaml\n- a:\n\n  b\n```", "```yaml\n- a:\n\n  b\n```"),
    ],
)
def test_nested_blocks_stay_in_their_list_item(hooks: types.ModuleType, written: str, read: str) -> None:
    assert hooks.nested(written) == read


def test_mkdocs_settings_name_the_hooks_and_decisions() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = yaml.safe_load(text)
    assert settings["hooks"] == [str(HOOKS.relative_to(ROOT))]
    assert settings["theme"]["font"] is False, "fonts are on another host"
    named = set(text.split())
    pages = {str(path.relative_to(ROOT / "docs")) for path in Path(ROOT / "docs" / "decisions").glob("*.md")}
    assert pages <= named, "each decision is in the navigation"
