"""The scripts of docs/recipes/watch-from-a-browser.md, run by Node with the few objects of a page that they use."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from apiext.conformance.support.http_client import Client
from tests.support.processes import ROOT, running_server

PAGE = "http://localhost:8000"
DEFINITION = ROOT / "tests" / "clients" / "manifests" / "resourcedefinition.yaml"


def scripts() -> list[str]:
    """Return the scripts of the pages: with EventSource, and with fetch and a token."""
    text = (ROOT / "docs" / "recipes" / "watch-from-a-browser.md").read_text(encoding="utf-8")
    return re.findall(r'<script type="module">\n(.*?)</script>', text, re.DOTALL)


def test_a_page_reads_a_watch_with_a_token(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not on this machine")
    _, script = scripts()
    flags = ["--port=0", "--store=memory", f"--cors-allowed-origins=^{PAGE}$"]
    with running_server(flags, tmp_path / "server") as server:
        token = (tmp_path / "server" / "admin.token").read_text().strip()
        watched = script.replace(
            "https://127.0.0.1:6443/apis/stable.example.com/v1/crontabs", f"{server.url}/api/v1/namespaces"
        )
        assert server.url in watched
        page = "const shown = { set textContent(text) { console.log(text) }, get textContent() { return '' } };"
        page += f"globalThis.prompt = () => {token!r}; setTimeout(() => process.exit(0), 1500);\n"
        (tmp_path / "page.mjs").write_text(page + watched, encoding="utf-8")
        done = subprocess.run(
            [node, "page.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
            env={"NODE_TLS_REJECT_UNAUTHORIZED": "0", "PATH": ""},
        )  # fmt: skip
    assert "ADDED default\n" in done.stdout, done.stderr


def test_the_server_lets_the_page_of_event_source_read(tmp_path: Path) -> None:
    script, _ = scripts()
    path = re.search(r'url = "http://127.0.0.1:8080(/[^?"]+)', script)
    assert path is not None
    with running_server(["--insecure", "--port=0", f"--cors-allowed-origins=^{PAGE}$"], tmp_path) as server:
        asked = {"Accept": "text/event-stream", "Origin": PAGE}
        answer = Client(server.url).get("/api/v1/namespaces", asked, watch="true", timeoutSeconds=1)
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '"type":"ADDED"' in answer.text
