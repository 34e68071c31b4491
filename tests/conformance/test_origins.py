"""CORS and the TLS requirement: headers as kube-apiserver v1.36.3 sends them."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.http_client import Client
from tests.support.client_certificates import dialling
from tests.support.processes import Etcd, Server, running_server

NAMESPACE = "/api/v1/namespaces/default"
GOOD = {"Origin": "https://good.example"}
ADMIN = {"Authorization": "Bearer sesame"}
HSTS = "max-age=31536000; includeSubDomains; preload"


def expected_cors_headers(origin: str) -> dict[str, str]:
    return {
        "access-control-allow-credentials": "true",
        "access-control-allow-headers": "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, "
        "X-Requested-With, If-Modified-Since",
        "access-control-allow-methods": "POST, GET, OPTIONS, PUT, DELETE, PATCH",
        "access-control-allow-origin": origin,
        "access-control-expose-headers": "Date",
    }


def cors_headers(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith("access-control-") or name == "vary"}


@pytest.fixture(scope="module")
def cors_server(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server whose responses web pages of two origins may read."""
    directory = tmp_path_factory.mktemp("origins")
    (directory / "tokens.csv").write_text('sesame,admin,1,"system:masters"\n')
    flags = [
        "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/origins",
        f"--token-auth-file={directory / 'tokens.csv'}", "--goaway-chance=0.02",
        "--cors-allowed-origins=//good\\.example(:|$),^http://other\\.example$",
        "--strict-transport-security-directives=max-age=31536000,includeSubDomains,preload",
    ]  # fmt: skip
    with running_server(flags, directory) as server:
        yield server


@pytest.fixture
def page(cors_server: Server) -> Client:
    """A client of that server."""
    return Client(cors_server.url, {}, dialling())


@pytest.mark.rows("LIM-005")
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", NAMESPACE, {**ADMIN, **GOOD}, 200),
        ("GET", f"{NAMESPACE}?resourceVersion=0", {**ADMIN, **GOOD}, 200),
        ("GET", NAMESPACE, {**ADMIN, "Origin": "https://good.example:8443"}, 200),
        ("GET", NAMESPACE, {**ADMIN, "Origin": "http://other.example"}, 200),
        ("GET", NAMESPACE, GOOD, 401),
        ("GET", "/api/v1/namespaces/nowhere", {**ADMIN, **GOOD}, 404),
        ("GET", "/api/v1/namespaces?watch=1&timeoutSeconds=1", {**ADMIN, **GOOD}, 200),
        ("POST", "/api/v1/namespaces", {**ADMIN, **GOOD}, 400),
        ("OPTIONS", NAMESPACE, {**GOOD, "Access-Control-Request-Method": "PUT"}, 204),
        ("OPTIONS", "/nowhere", GOOD, 204),
    ],
)
def test_allowed_origins_get_cors_headers(
    page: Client, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = page.request(method, path, b"{" if method == "POST" else None, headers)
    assert answer.status == status
    assert cors_headers(answer.headers) == expected_cors_headers(headers["Origin"])
    assert answer.headers["strict-transport-security"] == HSTS
    assert answer.headers["cache-control"] == "no-cache, private"
    if status == 204:
        assert answer.raw == b""
        assert "content-length" not in answer.headers


@pytest.mark.rows("LIM-005")
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", ADMIN, 200),
        ("GET", {**ADMIN, "Origin": "https://good.example.evil"}, 200),
        ("GET", {**ADMIN, "Origin": "null"}, 200),
        ("GET", {**ADMIN, "Origin": "https://" + "a" * 2_000 + "//good.example"}, 200),  # matches, but no valid origin
        ("OPTIONS", ADMIN, 405),
        ("OPTIONS", {**ADMIN, "Origin": "https://evil"}, 405),
        ("OPTIONS", {"Origin": "https://evil"}, 401),
    ],
)
@pytest.mark.parametrize("query", ["", "?resourceVersion=0"])
def test_other_origins_get_no_cors_headers(
    page: Client, method: str, headers: dict[str, str], status: int, query: str
) -> None:
    for _ in range(2):
        answer = page.request(method, NAMESPACE + query, None, headers)
        assert answer.status == status
        assert cors_headers(answer.headers) == {}
        assert answer.headers["strict-transport-security"] == HSTS


@pytest.mark.rows("LIM-005")
def test_requests_of_one_connection_get_headers_of_their_origin(cors_server: Server) -> None:
    address = urlsplit(cors_server.url)
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=dialling())
    seen: list[Any] = []
    for headers in (ADMIN, {**ADMIN, **GOOD}, ADMIN, {**ADMIN, "Origin": "http://other.example"}, ADMIN):
        connection.request("GET", f"{NAMESPACE}?resourceVersion=0", headers=headers)
        answer = connection.getresponse()
        answer.read()
        seen.append(answer.getheader("Access-Control-Allow-Origin"))
    connection.close()
    assert seen == [None, "https://good.example", None, "http://other.example", None]


@pytest.fixture(scope="module")
def plain_server(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server without authentication, to which pages of one origin may write."""
    flags = [
        "--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/origins-plain",
        "--strict-transport-security-directives=preload", "--cors-allowed-origins=//good\\.example(:|$)",
    ]  # fmt: skip
    with running_server(flags, tmp_path_factory.mktemp("plain")) as server:
        yield server


@pytest.mark.rows("LIM-005")
def test_server_without_tls_sends_no_hsts_header(plain_server: Server) -> None:
    answer = Client(plain_server.url).get(NAMESPACE, {"Origin": "https://evil"})
    assert "strict-transport-security" not in answer.headers
    assert cors_headers(answer.headers) == {}


def from_page(site: str, **headers: str) -> dict[str, str]:
    """Return headers that a browser adds only for requests to loopback addresses or with TLS."""
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Accept-Language": "en", **headers}


NAMED = {"Host": "evil.example:8080"}
STORED, REFUSED = 400, 403  # 400: the invalid body reached the decoder


@pytest.mark.rows("LIM-005")
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        # requests of programs
        ("POST", {}, STORED),
        ("POST", {"Host": "apiext:8080"}, STORED),
        ("GET", {"Host": "apiext"}, 200),
        ("GET", {"Host": "host.docker.internal:1"}, 200),
        ("GET", {"Host": "other.localhost.:1"}, 200),
        ("GET", {"Host": "10.0.0.1"}, 200),
        ("GET", {"Host": "LOCALHOST"}, 200),
        # the server's own pages, also through a proxy with another Host
        ("POST", from_page("same-origin", Origin="{url}"), STORED),
        ("POST", from_page("same-origin", Origin="https://ui.example", **NAMED), STORED),
        ("POST", from_page("none"), STORED),
        ("POST", {"Origin": "{url}"}, STORED),
        ("POST", {"Origin": "http://localhost:1", "Host": "localhost:1"}, STORED),
        ("GET", {"Host": "[::1]:80", "Accept-Language": "en"}, 200),
        ("GET", from_page("same-origin", **NAMED), 200),
        # pages of an allowed origin
        ("POST", from_page("cross-site", Origin="https://good.example"), STORED),
        ("POST", {"Origin": "http://good.example:8080"}, STORED),
        ("GET", {"Host": "good.example", "Accept-Language": "en"}, 200),
        # pages of other origins, which may not write
        ("POST", {"Origin": "http://evil.example"}, REFUSED),
        ("POST", {"Origin": "null"}, REFUSED),
        ("POST", from_page("cross-site", Origin="http://evil.example"), REFUSED),
        ("POST", from_page("same-site", Origin="http://localhost:3000"), REFUSED),
        ("POST", from_page("cross-site"), REFUSED),
        ("DELETE", {"Origin": "http://evil.example"}, REFUSED),
        # reads, whose responses browsers do not pass to the page ...
        ("GET", from_page("cross-site"), 200),
        ("GET", {"Origin": "http://evil.example", "Accept-Language": "en"}, 200),
        # ... unless their host name now resolves to this machine
        ("GET", NAMED, REFUSED),
        ("POST", NAMED, REFUSED),
        ("GET", {**NAMED, "Accept-Language": "en"}, REFUSED),
        ("GET", {**NAMED, "Accept-Language": "*", "Sec-Fetch-Mode": "cors"}, REFUSED),
        ("GET", {"Host": "127.0.0.1.evil.example"}, REFUSED),
        ("GET", {"Host": "[::1].evil.example"}, REFUSED),
        ("POST", {"Host": "[::1].evil.example", "Origin": "http://[::1].evil.example"}, REFUSED),
        ("GET", {"Host": "[evil.example]"}, REFUSED),
        ("GET", {"Host": "localhost.evil.example"}, REFUSED),
        ("GET", {"Host": "evil.example."}, REFUSED),
        ("POST", {**NAMED, "Origin": "http://evil.example:8080"}, REFUSED),
    ],
)
def test_insecure_server_refuses_writes_of_foreign_pages(
    plain_server: Server, method: str, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.format(url=plain_server.url) for name, value in headers.items()}
    api = Client(plain_server.url)
    for path in (
        ("/api/v1/namespaces", f"{NAMESPACE}?resourceVersion=0") if method == "GET" else ("/api/v1/namespaces",)
    ):
        answer = api.request(method, path, b"{" if method == "POST" else None, sent)  # without a Content-Type
        assert answer.status == status
        if status == REFUSED:
            assert "--cors-allowed-origins" in answer.json["message"]
    assert api.get("/readyz", sent).status == 200
