"""Request bodies: JSON, YAML and protobuf, and their errors."""

import asyncio

import pytest
from aiohttp.streams import StreamReader

from apiext.documents import limits as documents_limits
from apiext.http import limits as http_limits
from apiext.http import protobuf
from apiext.http.health import Check, Health
from apiext.telemetry import Telemetry
from tests.unit.http.support import COLLECTION, Client, Shelf, connected, on_uvloop, serving

PROTOBUF = "application/vnd.kubernetes.protobuf"
START = "the object provided is unrecognized (must be of type Widget): "
PARSE = START + "couldn't get version/kind; json parse error: "


@pytest.mark.rows("ERR-11", "ERR-15", "NEG-001", "NEG-004")
@pytest.mark.parametrize(
    ("body", "content_type", "code", "message"),
    [
        (b"[]", "", 400, PARSE + "json: cannot unmarshal array into Go value of type struct { APIVersion string "),
        (b"12", "application/json", 400, PARSE + "json: cannot unmarshal number into Go value of type struct"),
        (b"{", "application/json", 400, PARSE + "unexpected end of JSON input ({)"),
        (b"", "application/json", 400, PARSE + "unexpected end of JSON input (<empty>)"),
        (b"a: [b\nc: d", "application/yaml", 400, START + "yaml: line 1: did not find expected ',' or ']' (613a205b"),
        (b"x" * 40, "", 400, " (" + "78" * 30 + " ...)"),
        (b"x", "text/plain", 415, f"include: application/json, application/yaml, {PROTOBUF}"),
        (b"k8s\x00", PROTOBUF, 415, "include: application/json, application/yaml"),
    ],
)
@on_uvloop
async def test_invalid_bodies_get_upstream_errors(body: bytes, content_type: str, code: int, message: str) -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        answer = await client.ask("POST", COLLECTION, body, Content_Type=content_type or "application/json")
        assert answer.code == code
        assert message in answer.json["message"]


@pytest.mark.rows("NEG-004")
@on_uvloop
async def test_json_yaml_and_protobuf_bodies_are_accepted() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        body = b'{"kind":"Widget","kind":"Widget","metadata":{"name":"a"}}'
        assert (await client.ask("POST", COLLECTION, body)).code == 201
        assert (shelf.bodies[-1].duplicates, shelf.bodies[-1].raw) == (['duplicate field "kind"'], body)
        in_yaml = b"kind: Widget\nmetadata:\n  name: b\n"
        assert (await client.ask("PUT", f"{COLLECTION}/b", in_yaml, Content_Type="application/yaml")).code == 200
        assert shelf.bodies[-1].document == {"kind": "Widget", "metadata": {"name": "b"}}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
        answer = await client.ask(
            "POST", "/api/v1/namespaces", protobuf.encode(namespace), Content_Type=PROTOBUF, Accept=PROTOBUF
        )
        assert (answer.code, answer.headers["Content-Type"]) == (201, PROTOBUF)
        assert protobuf.decode(answer.body)["metadata"]["name"] == "n"
        assert shelf.bodies[-1].document == namespace
        assert (await client.ask("POST", "/api/v1/namespaces", b"k8s", Content_Type=PROTOBUF)).code == 400


@pytest.mark.rows("WRI-007", "AUT-004")
@on_uvloop
async def test_patch_passes_its_media_type_and_manager() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        kind = "application/merge-patch+json"
        answer = await client.ask("PATCH", f"{COLLECTION}/a", b"{}", Content_Type=f"{kind}; charset=utf-8")
        assert (answer.code, shelf.bodies[-1]) == (200, (kind, b"{}"))
        assert (shelf.calls[-1].verb, shelf.calls[-1].name, shelf.calls[-1].manager) == ("patch", "a", "")
        await client.ask("PATCH", f"{COLLECTION}/a", b"{}", Content_Type=kind, User_Agent="kubectl/v1.35 (linux)")
        assert shelf.calls[-1].manager == "kubectl"
        assert (await client.ask("PATCH", f"{COLLECTION}/a", b"{}")).code == 415


async def passed_options(client: Client, shelf: Shelf, body: bytes, **headers: str) -> object:
    assert (await client.ask("DELETE", f"{COLLECTION}/a", body, **headers)).code == 200
    return shelf.bodies[-1]


@pytest.mark.rows("WRI-020")
@on_uvloop
async def test_delete_passes_its_options() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        assert await passed_options(client, shelf, b"") is None
        assert await passed_options(client, shelf, b"", Content_Type="application/json") is None
        assert await passed_options(client, shelf, b"{}") == {}
        assert await passed_options(client, shelf, b'{"propagationPolicy":"Orphan"}') == {"propagationPolicy": "Orphan"}
        empty = b"k8s\x00\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions"
        assert await passed_options(client, shelf, empty, Content_Type=PROTOBUF) == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
        }
        broken = await client.ask("DELETE", f"{COLLECTION}/a", b"{")
        assert broken.json["message"] == "couldn't get version/kind; json parse error: unexpected end of JSON input"
        assert (await client.ask("DELETE", COLLECTION)).json["kind"] == "WidgetList"


@on_uvloop
async def test_missing_body_times_out_with_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "BODY_TIMEOUT", 0.01)
    async with serving(Shelf()) as server, connected(server) as client:
        client.send("POST", COLLECTION, Content_Length="10")
        answer = await client.receive()
        assert (answer.code, answer.json["reason"]) == (408, "Timeout")


@pytest.mark.rows("ERR-16")
@on_uvloop
async def test_size_limit_applies_to_a_body_received_with_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_limits, "MAX_BODY", 10)
    async with serving(Shelf()) as server, connected(server) as client:
        for body in (b"x" * 10, b"x" * 11):
            answer = await client.ask("POST", COLLECTION, body)
            assert answer.code == (400 if len(body) == 10 else 413)


@pytest.mark.rows("ERR-16")
@pytest.mark.parametrize("whole", [True, False])
@on_uvloop
async def test_a_body_far_over_the_limit_ends_the_connection(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    if whole:  # it arrives with its head
        monkeypatch.setattr(documents_limits, "MAX_BODY", 1000)
        monkeypatch.setattr(http_limits, "BODY_SKIPPED", 500)
    near, far = (
        documents_limits.MAX_BODY + http_limits.BODY_SKIPPED,
        documents_limits.MAX_BODY + http_limits.BODY_SKIPPED + 1,
    )
    async with serving(Shelf()) as server, connected(server) as client:
        answer = await client.ask("POST", COLLECTION, b"x" * near)
        assert (answer.code, answer.headers.get("Connection")) == (413, None)
        answer = await client.ask("POST", COLLECTION, b"x" * far)
        assert (answer.code, answer.headers.get("Connection")) == (413, "close")
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


@on_uvloop
async def test_invalid_chunked_body_gets_400() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        client.send("POST", COLLECTION, Transfer_Encoding="chunked")
        client.writer.write(b"2\r\n{}\r\nzz\r\n")
        assert (await client.receive()).code == 400


@pytest.mark.parametrize(("path", "code"), [(COLLECTION, 201), ("/nope", 404)])
@on_uvloop
async def test_body_of_many_small_chunks_yields_to_the_event_loop(
    path: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"kind":"Widget","metadata":{"name":"a"},"x":"%b"}' % (b"x" * 50_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    fed = [0]
    feed = StreamReader.feed_data

    def counted(reader: StreamReader, data: bytes, size: int = 0) -> bool:
        fed[-1] += 1
        return feed(reader, data, size)

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            if fed[-1]:
                fed.append(0)

    monkeypatch.setattr(StreamReader, "feed_data", counted)
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client, asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        client.send("POST", path, Transfer_Encoding="chunked", Content_Type="application/json")
        client.writer.write(chunks + b"0\r\n\r\n")
        assert (await client.receive()).code == code
        assert (await client.ask("GET", f"{COLLECTION}/b")).code == 404  # the connection stays usable
        counting.cancel()
    assert sum(fed) == len(body)
    assert max(fed) < 4 * http_limits.BODY_BUFFER // 16
    assert [one.raw for one in shelf.bodies] == ([body] if code == 201 else [])


@on_uvloop
async def test_http_1_0_connections_close_unless_keep_alive() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        head = f"GET {COLLECTION}/a?resourceVersion=0 HTTP/1.0\r\n"
        client.writer.write(f"{head}Connection: keep-alive\r\n\r\n".encode())
        assert (await client.receive()).headers["Connection"] == "keep-alive"
        client.writer.write(f"{head}\r\n".encode())
        assert "Connection" not in (await client.receive()).headers
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


@pytest.mark.rows("SRV-017")
@on_uvloop
async def test_head_requests_of_a_watch_and_an_unknown_path() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        assert (await client.ask("HEAD", f"{COLLECTION}?watch=true")).code == 200
        assert (await client.ask("HEAD", "/nope")).code == 404


@pytest.mark.rows("ERR-03", "ERR-21", "HLT-003")
@on_uvloop
async def test_unknown_paths_get_503_until_definitions_are_synced() -> None:
    missing = ["not yet"]
    health = Health([Check("poststarthook/crd-informer-synced", lambda: missing[0])])
    async with serving(Shelf(), health=health) as server, connected(server) as client:
        for path in ("/apis/later.example.com/v1/things", "/apis/later.example.com", "/apis/later.example.com/v1"):
            answer = await client.ask("GET", path)
            assert (answer.code, answer.headers["Retry-After"]) == (503, "5")
            assert answer.json["details"]["retryAfterSeconds"] == 5
        assert (await client.ask("GET", COLLECTION)).code == 200
        missing[0] = ""
        assert (await client.ask("GET", "/apis/later.example.com/v1/things")).code == 404


@pytest.mark.rows("MTR-001", "MTR-002")
@on_uvloop
async def test_metrics_count_requests_watches_and_events() -> None:
    shelf, telemetry = Shelf(), Telemetry()
    shelf.put("a")
    async with serving(shelf, telemetry=telemetry) as server, connected(server) as client, connected(server) as other:
        for method, path in (("GET", COLLECTION), ("DELETE", COLLECTION), ("POST", COLLECTION), ("GET", "/x")):
            await client.ask(method, path)
        await client.ask("PATCH", f"{COLLECTION}/a", b"x", Content_Type="application/apply-patch+yaml")
        other.send("GET", f"{COLLECTION}?watch=true")
        await other.head()
        shelf.put("b")
        await other.chunk()
        assert 'verb="WATCH",dry_run' not in telemetry.text()  # the watch continues
        answer = await client.ask("GET", "/metrics")
        text = answer.body.decode()
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert (await client.ask("GET", "/metrics/slis")).body.startswith(b"# HELP kubernetes_healthcheck ")
    where = 'group="example.com",version="v1",resource="widgets",subresource=""'
    for verb, scope in (("LIST", "namespace"), ("DELETE", "namespace"), ("APPLY", "resource")):
        wanted = f'verb="{verb}",dry_run="",{where},scope="{scope}",component="apiserver",code="200"'
        assert f"apiserver_request_total{{{wanted}}} 1" in text
    for line in (
        f'apiserver_longrunning_requests{{verb="WATCH",{where},scope="namespace",component="apiserver"}} 1',
        'apiserver_watch_events_total{group="example.com",version="v1",resource="widgets"} 1',
        'apiserver_current_inflight_requests{request_kind="readOnly"} 1',
        "# TYPE apiserver_request_duration_seconds histogram",
        "# TYPE apiserver_request_sli_duration_seconds histogram",
        "# TYPE process_cpu_seconds_total counter",
    ):
        assert line in text
    watched = f'verb="WATCH",dry_run="",{where},scope="namespace",component="apiserver"'
    ended = telemetry.text()
    assert f'apiserver_request_total{{{watched},code="200"}} 1' in ended
    assert f"apiserver_request_duration_seconds_count{{{watched}}} 1" in ended
    assert 'apiserver_request_sli_duration_seconds_count{verb="WATCH"' not in ended
    assert telemetry.longrunning.slot("WATCH", "example.com", "v1", "widgets", "", "namespace", "apiserver").value == 0


def test_histograms_are_cumulative() -> None:
    telemetry = Telemetry()
    for seconds in (0.001, 0.03, 0.03, 100.0):
        telemetry.etcd_seconds.slot("g", "get", 'a"b').observe(seconds)
    lines = list(telemetry.etcd_seconds.lines())
    assert lines[0] == 'etcd_request_duration_seconds_bucket{group="g",operation="get",resource="a\\"b",le="0.005"} 1'
    assert lines[2].endswith('le="0.05"} 3')
    assert lines[-3].endswith('le="+Inf"} 4')
    assert lines[-1].endswith('_count{group="g",operation="get",resource="a\\"b"} 4')
    assert telemetry.etcd_seconds.slot("g", "get", 'a"b').count == 4
