"""A browser: the page at /, and the pages of docs/recipes/watch-from-a-browser.md."""

from __future__ import annotations

import functools
import http.server
import re
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until
from tests.support.chromium import browser_page
from tests.support.processes import ROOT, Server, running_server

RECIPE = ROOT / "docs" / "recipes" / "watch-from-a-browser.md"
MANIFESTS = ROOT / "tests" / "clients" / "manifests"
CRONTABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"


class Site(http.server.SimpleHTTPRequestHandler):
    """Serves files without log lines."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The directory of a web server, and its origin."""
    directory = tmp_path / "site"
    directory.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, directory=str(directory))) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield directory, f"http://localhost:{served.server_port}"
        served.shutdown()
        thread.join()


def recipe_page(heading: str, replaced: str, server: Server) -> str:
    """Return the HTML page below a heading of the recipe, with this server's URL.

    The URL replaces ``replaced``.
    """
    text = RECIPE.read_text(encoding="utf-8").partition(heading)[2]
    page = re.findall(r"```html\n(.*?)```", text, re.DOTALL)[0]
    assert replaced in page
    return page.replace(replaced, server.url)


def crontab(name: str) -> dict[str, object]:
    """Return a CronTab, as in the README."""
    spec = {"cronSpec": "0 3 * * *"}
    return {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec}


def with_crontab(server: Server) -> Client:
    """Create the definition and one object on a server; return a client of it."""
    token, tls = "", None
    if server.url.startswith("https"):
        directory = Path(server.ready["kubeconfig"]).parent
        token = (directory / "admin.token").read_text(encoding="utf-8").strip()
        tls = ssl.create_default_context(cafile=directory / "pki" / "ca.crt")
    client = Client(server.url, {"Authorization": f"Bearer {token}"} if token else None, tls)
    definition = yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text(encoding="utf-8"))
    client.post(DEFINITIONS, definition).expect(201)
    until(lambda: client.get(CRONTABS).status == 200, "the definition is served")
    client.post(CRONTABS, crontab("first")).expect(201)
    return client


@pytest.mark.parametrize("flags", [(), ("--insecure",)], ids=["https", "http"])
def test_front_page_works_under_its_content_security_policy(tmp_path: Path, flags: tuple[str, ...]) -> None:
    started = running_server(["--port=0", "--store=memory", *flags], tmp_path / "server")
    with started as server, browser_page(tmp_path) as page:
        page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        page.open(server.url)
        page.shows("apiext kubeconfig merge")
        assert page.evaluate("getComputedStyle(document.querySelector('pre')).borderRadius") == "6px"
        page.evaluate("document.querySelector('button').click()")
        page.shows("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "apiext kubeconfig merge"
        assert [error for error in page.errors if "favicon" not in error] == []
        page.evaluate(FOREIGN)
        assert page.evaluate("globalThis.entered") is None
        assert any("Content Security Policy" in error for error in page.errors), page.errors


FOREIGN = """new Promise((done) => {
  document.addEventListener("securitypolicyviolation", done);
  document.body.append(Object.assign(document.createElement("script"), { textContent: "globalThis.entered = 1" }));
}).then(() => null)"""
"""Adds a script to the page; the promise is resolved when the content security policy has refused the script."""


def test_a_page_reads_server_sent_events(tmp_path: Path, site: tuple[Path, str]) -> None:
    directory, origin = site
    flags = ["--insecure", "--port=0", "--store=memory", f"--cors-allowed-origins=^{origin}$"]
    with running_server(flags, tmp_path / "server") as server:
        client = with_crontab(server)
        text = recipe_page("**Without a token**", "http://127.0.0.1:8080", server)
        (directory / "index.html").write_text(text, encoding="utf-8")
        with browser_page(tmp_path) as page:
            page.open(origin)
            page.shows("ADDED first")
            client.post(CRONTABS, crontab("second")).expect(201)
            page.shows("ADDED first\nADDED second")


def test_a_page_reads_a_watch_with_a_token(tmp_path: Path, site: tuple[Path, str]) -> None:
    directory, origin = site
    flags = ["--port=0", "--store=memory", f"--cors-allowed-origins=^{origin}$"]
    with running_server(flags, tmp_path / "server") as server:
        client = with_crontab(server)
        text = recipe_page("**With a token**", "https://127.0.0.1:6443", server)
        (directory / "index.html").write_text(text, encoding="utf-8")
        with browser_page(tmp_path) as page:
            page.prompted = client.headers["Authorization"].removeprefix("Bearer ")
            page.open(origin)
            page.shows("ADDED first")
            client.post(CRONTABS, crontab("second")).expect(201)
            page.shows("ADDED first\nADDED second")


def test_a_page_reads_a_websocket_with_a_token(tmp_path: Path, site: tuple[Path, str]) -> None:
    directory, origin = site
    script = re.findall(r"```js\n(.*?)```", RECIPE.read_text(encoding="utf-8"), re.DOTALL)[0]
    (directory / "index.html").write_text("<!doctype html><pre id=shown></pre>", encoding="utf-8")
    with running_server(["--port=0", "--store=memory"], tmp_path / "server") as server:
        client = with_crontab(server)
        for replaced, by in (
            ("wss://127.0.0.1:6443", server.url.replace("https", "wss")),
            ("the token", client.headers["Authorization"].removeprefix("Bearer ")),
            ("console.log(JSON.parse(message.data))", "shown.textContent += message.data"),
        ):
            assert replaced in script
            script = script.replace(replaced, by)
        with browser_page(tmp_path) as page:
            page.open(f"{server.url}/livez")  # as the recipe says
            page.open(origin)
            page.evaluate(f"{{ {script} }}")
            page.shows('"name":"first"')
            client.post(CRONTABS, crontab("second")).expect(201)
            page.shows('"name":"second"')
