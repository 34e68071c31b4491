"""The server answers bad input quickly with the right 4xx, and still serves other requests."""

from __future__ import annotations

import contextlib
import json
import socket
import time

import pytest

from apiext.conformance.support.definitions import definition, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, Client
from apiext.conformance.support.waiting import prompt

YAML = {"Content-Type": "application/yaml"}
QUICK = 5.0  # limit in seconds, more on a busy machine (``prompt``); usually an answer takes milliseconds


@pytest.fixture(scope="module")
def widgets_path(request: pytest.FixtureRequest) -> tuple[Client, str]:
    """A client, and the path of a resource; the tests of this module share them."""
    server = request.getfixturevalue("server")
    client = server.client()
    return client, serve(client).path()


def refused(client: Client, path: str, body: bytes | str, headers: dict[str, str], *codes: int) -> None:
    started = time.monotonic()
    answer = client.request("POST", path, body, headers)
    assert answer.status in (codes or (400, 413, 422)), (answer.status, answer.raw[:300])
    assert answer.json["kind"] == "Status"
    prompt(time.monotonic() - started, QUICK)
    client.get(path).expect(200)


def aliases(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "body",
    [
        aliases(9),
        "a: &a [*a]",
        "!!python/object/apply:os.system ['true']",
        "apiVersion: v1\n---\nkind: Widget\n",
        "kind: [unclosed",
        "{" * 5000,
        "? [complex, key]\n: value\n",
        "\x00",
    ],
    ids=["alias bomb", "own alias", "tag", "two documents", "broken", "deep", "complex key", "nul"],
)
def test_yaml(widgets_path: tuple[Client, str], body: str) -> None:
    refused(*widgets_path, body, YAML)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"NaN",
        b'{"kind": Infinity}',
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b"[" * 1_000_000,
        b'{"kind":"Widget","apiVersion":"' + b"x" * 1000,
        b'{"kind":"\xff\xfe"}',
        b'\xef\xbb\xbf{"kind":"Widget"}',
        b'{"kind":"Widget","apiVersion":1' + b"0" * 1_000_000 + b"}",
    ],
    ids=[
        "empty", "half", "list", "null", "string", "nan", "infinity", "deep object", "deep list", "cut", "utf-8", "bom",
        "long number",
    ],
)  # fmt: skip
def test_json(widgets_path: tuple[Client, str], body: bytes) -> None:
    refused(*widgets_path, body, {"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("kind", "body", "codes"),
    [
        (JSON_PATCH, json.dumps([{"op": "test", "path": "/nosuch", "value": 1}]), (422,)),
        (JSON_PATCH, json.dumps([{"op": "move", "from": "/spec", "path": "/spec/x"}]), (422, 400)),
        (JSON_PATCH, json.dumps([{"op": "add", "path": "/spec/list/99999999999", "value": 1}]), (422, 400)),
        (JSON_PATCH, json.dumps([{"op": "add", "path": "/metadata/labels", "value": {}}] * 10_001), (413,)),
        (JSON_PATCH, json.dumps({"op": "add"}), (400,)),
        (MERGE, "[1]", (400,)),
        (MERGE, "null", (400, 422)),
        (MERGE, json.dumps({"metadata": {"name": "other"}}), (400, 422)),
        (MERGE, json.dumps({"metadata": {"labels": {"bad key!": "x"}}}), (422,)),
    ],
    ids=["test", "into itself", "huge index", "too many", "object", "merge list", "merge null", "rename", "label"],
)
def test_patches(widgets_path: tuple[Client, str], kind: str, body: str, codes: tuple[int, ...]) -> None:
    client, path = widgets_path
    group = path.split("/")[2]
    object_path = f"{path}/patched"
    client.post(
        path, {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "patched"}, "spec": {"color": "red"}}
    )
    before = client.get(object_path).expect(200)
    answer = client.patch(object_path, body, kind)
    assert answer.status in codes, (answer.status, answer.raw[:300])
    assert client.get(object_path).expect(200) == before


def test_copy_operations_of_a_json_patch_are_limited(widgets_path: tuple[Client, str]) -> None:
    client, path = widgets_path
    group = path.split("/")[2]
    body = {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "copied", "annotations": {"a": "x" * 1000}},
    }
    client.post(path, body).expect(201)
    doubling = [
        {"op": "copy", "from": "/metadata/annotations", "path": f"/metadata/annotations/b{number}"}
        for number in range(40)
    ]
    answer = client.patch(f"{path}/copied", doubling, JSON_PATCH)
    assert 400 <= answer.status < 500


@pytest.mark.rows("RV-004", "RV-006", "SEL-005")
@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"},
        {"limit": "9223372036854775808"},
        {"continue": "zzz"},
        {"continue": "e30"},
        {"resourceVersion": "-1"},
        {"resourceVersion": "abc"},
        {"resourceVersionMatch": "Exact"},
        {"resourceVersion": "1", "resourceVersionMatch": "Sometimes"},
        {"labelSelector": "a in (b"},
        {"labelSelector": "!" * 1000},
        {"fieldSelector": "spec.nosuch=1"},
        {"fieldSelector": "metadata.name"},
        {"timeoutSeconds": "soon"},
        {"sendInitialEvents": "true"},
    ],
    ids=lambda query: "&".join(f"{key}={value[:12]}" for key, value in query.items()),
)
def test_list_options(widgets_path: tuple[Client, str], query: dict[str, str]) -> None:
    client, path = widgets_path
    answer = client.get(path, **query)
    if query == {"limit": "-1"}:
        assert answer.status in (200, 400, 422)  # upstream ignores a negative limit
    else:
        assert 400 <= answer.status < 500, answer.raw[:200]


@pytest.mark.rows("SRV-001")
@pytest.mark.parametrize(
    "tail",
    [
        "/..%2f..%2fsecret", "/%00", "/a%2fb", "/../../../etc/passwd", "//x/y", "/a/b/c", "/%zz", "/" + "x" * 300,
        "/%e2%80%ae",
    ],
)  # fmt: skip
def test_paths(widgets_path: tuple[Client, str], tail: str) -> None:
    client, path = widgets_path
    assert 400 <= client.get(path + tail).status < 500


def raw_exchange(client: Client, data: bytes) -> bytes:
    received = b""
    with client.dial() as line:
        with contextlib.suppress(OSError):  # a server may close the connection before the client has sent all bytes
            line.sendall(data.replace(b"Host: x\r\n", b"Host: x\r\n" + client.fields))
            if client.tls is None:  # TLS has no half-closed connections
                line.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while chunk := line.recv(65536):
                received += chunk
    return received


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n",
            marks=pytest.mark.differs("it accepts headers of up to a mebibyte"),
        ),
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        pytest.param(
            b"POST /apis HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            marks=pytest.mark.differs("Transfer-Encoding overrides Content-Length"),
        ),
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"TRACE /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        pytest.param(
            b"GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 10_000 + b"\r\n",
            marks=pytest.mark.differs("it accepts headers of up to a mebibyte"),
        ),
    ],
    ids=["garbage", "long header", "long url", "two lengths", "negative length", "trace", "many headers"],
)
def test_broken_http(widgets_path: tuple[Client, str], data: bytes, foreign: bool) -> None:
    client, path = widgets_path
    answer = raw_exchange(client, data)
    # Another server may be behind a proxy, which answers some of these requests itself: with 502, or with 504 (TRACE).
    refused = (b"4", b"502", b"504") if foreign else b"4"
    assert not answer or answer.split(b" ")[1].startswith(refused), answer[:200]
    client.get(path).expect(200)


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize(
    "path", ["/", "/version", "/healthz", "/nowhere", "/api/v1/namespaces", "/api/v1/namespaces/default"]
)
def test_no_response_contains_the_request(api: Client, method: str, path: str) -> None:
    """A response to TRACE would contain cookies and tokens, which a web page must not read."""
    if path.startswith("/api/"):
        api.get(path).expect(200)
    with api.dial() as line:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nCookie: secret=trace\r\n"
        line.sendall(head.encode() + api.fields + b"\r\n")
        answer = b""
        while piece := line.recv(65536):
            answer += piece
    assert b"secret" not in answer
    assert b"message/http" not in answer
    if path.startswith("/api/"):
        assert answer.startswith(b"HTTP/1.1 405 ")


@pytest.mark.differs("a transfer encoding other than chunked is a 501")
def test_a_transfer_encoding_of_gzip_is_refused(api: Client) -> None:
    with api.dial() as line:
        line.sendall(
            b"POST /api/v1/namespaces?dryRun=All HTTP/1.1\r\nHost: x\r\n"
            + api.fields
            + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
            b'1e\r\n{"metadata":{"name":"zipped"}}\r\n0\r\n\r\n'
        )
        assert line.recv(65536).startswith(b"HTTP/1.1 415 ")


def test_a_request_may_have_a_thousand_headers(api: Client) -> None:
    """A proxy may send one header for each group of a user."""
    groups = {f"X-Remote-Group-{number}": "devs" for number in range(1_000)}
    api.get("/api/v1/namespaces/default", groups).expect(200)


def test_a_hostile_pattern_costs_little(api: Client) -> None:
    color = {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": color}}}}
    widgets = serve(api, schema={"openAPIV3Schema": schema})
    # kube-apiserver delays the first create after a definition, so the time of the second one is measured
    api.post(widgets.path(), widgets.make("a", color="a")).expect(422)
    started = time.monotonic()
    api.post(widgets.path(), widgets.make("a", color="a" * 40_000)).expect(422)
    prompt(time.monotonic() - started, 2)


@pytest.mark.rows("STR-010")
def test_a_pattern_with_a_lookahead_is_refused(api: Client) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "string", "pattern": "(?=a)b"}}}
    body = definition("look.example.com", schema={"openAPIV3Schema": schema})
    assert "must be a valid regular expression" in api.post(DEFINITIONS, body).expect(422)["message"]
