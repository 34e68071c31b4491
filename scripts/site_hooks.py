"""Hooks of MkDocs for the site: pictures, list items, and files from other hosts.

They draw pictures, keep blocks in list items, and deny pages that load files from another host.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"(\d+\.|[-*]) +(?=\S)")
INDENT = " " * 4  # Python-Markdown puts a block into a list item only if it is indented this far


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Render each Mermaid drawing of a page into an SVG file in the directory of the page."""
    import mermaidx
    from mkdocs.structure.files import File

    def drawn(found: re.Match[str]) -> str:
        path = f"{page.file.src_uri.removesuffix('.md')}-{found.start()}.svg"
        files.append(File.generated(config, path, content=mermaidx.render(found[1]).svg()))
        return f'![Drawing]({Path(path).name}){{ style="background: white; padding: 1em" }}'

    return FENCE.sub(drawn, nested(markdown))


def nested(markdown: str) -> str:
    """Indent the content of list items as Python-Markdown needs it.

    GitHub needs the width of the marker only.
    """
    lines: list[str] = []
    width, blocks, fenced, before = 0, False, False, ""
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced, width, blocks = not fenced, 0, False
        elif not fenced and (item := ITEM.match(line)):
            lines += [""] * (blocks and bool(before))  # else the item continues the paragraph before it
            width, blocks = item.end(), False
        elif width and line.startswith(" " * width):
            lines.append(INDENT + line[width:])
            blocks, before = blocks or not before, line
            continue
        elif line and not before:
            width, blocks = 0, False  # a paragraph behind the list
        lines.append(line)
        before = line
    return "\n".join(lines)


def on_post_build(config: Any) -> None:
    """Raise PluginError if a page loads files from another host.

    Raise it also if a page leaves a drawing to the Mermaid of the theme.
    """
    from mkdocs.exceptions import PluginError

    pages = sorted(Path(config.site_dir).rglob("*.html"))
    if faults := [f"{page}: {it}" for page in pages for it in elsewhere(page.read_text(encoding="utf-8"))]:
        raise PluginError("\n".join(["these pages need another host:", *faults]))


def elsewhere(text: str) -> list[str]:
    """Return the addresses on other hosts from which a page loads files.

    The result also has a text for each Mermaid drawing.
    """
    reader = Loads()
    reader.feed(text)
    return reader.found


class Loads(HTMLParser):
    """Collects the addresses on other hosts from which a page loads files; links load no files."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the addresses of one element."""
        values = {name: value or "" for name, value in attrs}
        addresses = [values.get("src", ""), values.get("data", ""), values.get("poster", ""), values.get("srcset", "")]
        loaded = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
        if tag == "link" and loaded & set(values.get("rel", "").split()):
            addresses.append(values.get("href", ""))
        self.found += [it for it in addresses if re.match(r"(https?:)?//", it)]
        self.found += ["a drawing by Mermaid"] * ("mermaid" in values.get("class", "").split())
