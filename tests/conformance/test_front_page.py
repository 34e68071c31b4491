"""The page at / for browsers: public, without data of the server.

It has a strict content security policy.
"""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
from collections.abc import Iterator

import pytest

from apiext.conformance.support.http_client import Client
from tests.support.processes import running_server

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.fixture(scope="module", params=[(), ("--authorization-mode=RBAC",), ("--insecure",)], ids=str)
def api(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client without credentials."""
    with running_server(["--port=0", "--store=memory", *request.param]) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        yield Client(server.url, tls=context)


def test_a_browser_gets_a_page_without_credentials(api: Client) -> None:
    page = api.get("/", {"Accept": BROWSER})
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for wanted in ("<h1>apiext</h1>", "version 0.", "/openapi/v3", "/readyz?verbose", "kubectl api-resources"):
        assert wanted in page.text
    head = api.request("HEAD", "/", headers={"Accept": BROWSER})
    assert (head.status, head.headers["content-length"], head.text) == (200, page.headers["content-length"], "")


def test_security_policy_permits_only_inlined_style_and_script(api: Client) -> None:
    page = api.get("/", {"Accept": BROWSER})
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert not re.search(r"unsafe|\*", page.headers["content-security-policy"])
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        [inline] = re.findall(f"<{element}>(.*?)</{element}>", page.text, re.DOTALL)
        assert policy[directive] == f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
    assert not re.search(r"<[^>]* (?:style|on\w+|src)=", page.text), "the policy would block it"
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/json", "application/json, text/html", "text/html;q=0", "text/*"]
)
@pytest.mark.parametrize("path", ["/", "/index.html"])
def test_any_other_client_gets_the_list_of_paths(api: Client, path: str, accept: str) -> None:
    answer = api.get(path, {"Accept": accept} if accept else {})
    assert answer.headers["content-type"].startswith("application/json")
    if api.url.startswith("https"):
        assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")
    else:
        assert "/apis" in answer.json["paths"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/index.html"), ("GET", "/apis"), ("POST", "/"), ("GET", "//"), ("GET", "/?a=b/..")]
)
def test_html_is_returned_only_for_get_of_the_root(api: Client, method: str, path: str) -> None:
    answer = api.request(method, path, headers={"Accept": BROWSER})
    if path == "/?a=b/..":
        assert answer.status == 200
    elif api.url.startswith("https"):
        assert answer.status == 401
    else:
        assert not answer.headers["content-type"].startswith("text/html")


def test_page_with_a_wrong_token_is_refused(api: Client) -> None:
    answer = api.get("/", {"Accept": BROWSER, "Authorization": "Bearer wrong"})
    assert answer.status == (401 if api.url.startswith("https") else 200)
