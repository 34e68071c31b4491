"""The responses of each path, tested with a server."""

from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from apiext.catalog.served import Catalog, LiveCatalog, Published
from apiext.conformance.support.cases import read as read_yaml
from apiext.http import published
from tests.unit.http.support import (
    COLLECTION,
    NAMESPACES,
    Client,
    Shelf,
    catalog,
    connected,
    endpoint,
    on_uvloop,
    resource,
    serving,
    version,
)

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
CASES = read_yaml(Path(__file__).parent / "cases" / "routes.yaml")
TYPES = {"json": "application/json", "text": "text/plain; charset=utf-8", "none": None}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def _is_as_in(case: dict[str, Any], body: str) -> bool:
    return case["body"] in body if "body" in case else bool(body == case["exactly"])


@pytest.mark.rows("SRV-001", "SRV-002", "SRV-003", "SRV-017", "ERR-03", "ERR-14", "RV-015", "DIS-101", "DIS-105")
@pytest.mark.parametrize("case", CASES, ids=[f"{case.get('method', 'GET')} {case['path']}" for case in CASES])
@on_uvloop
async def test_route_returns_the_listed_response(case: dict[str, Any]) -> None:
    shelf = Shelf()
    shelf.put("a", x=1)
    method = case.get("method", "GET")
    async with serving(shelf) as server, connected(server) as client:
        answer = await client.ask(method, case["path"])
        assert answer.code == case["code"], answer.body
        assert _is_as_in(case, answer.body.decode())
        assert answer.headers.get("Content-Type") == TYPES[case.get("type", "json")]


@pytest.mark.rows("SRV-001", "SRV-002", "SRV-003")
@on_uvloop
async def test_the_cache_of_routes_changes_no_response() -> None:
    shelf = Shelf()
    shelf.put("a", x=1)
    reads = [case for case in CASES if case.get("method", "GET") in {"GET", "PUT", "PATCH"}]
    async with serving(shelf) as server, connected(server) as client:
        for case in (*reads, *reversed(reads)):
            answer = await client.ask(case.get("method", "GET"), case["path"])
            assert (answer.code, _is_as_in(case, answer.body.decode())) == (case["code"], True), case["path"]
        shelf.catalog.current = Catalog()
        assert (await client.ask("GET", COLLECTION)).code == 404


@pytest.mark.rows("MTR-002")
@on_uvloop
async def test_metrics_count_apply_separately_from_patch() -> None:
    shelf = Shelf()
    shelf.put("a", x=1)
    async with serving(shelf) as server, connected(server) as client:
        for media in ("merge-patch+json", "apply-patch+yaml", "merge-patch+json"):
            await client.ask("PATCH", f"{COLLECTION}/a?fieldManager=me", b"{}", Content_Type=f"application/{media}")
        found = (await client.ask("GET", "/metrics")).body.decode()
    counted = [line for line in found.splitlines() if "request_total" in line and "widgets" in line]
    assert [line.rsplit(" ", 1)[1] for verb in ("APPLY", "PATCH") for line in counted if verb in line] == ["1", "2"]


@pytest.mark.rows("ERR-03")
@on_uvloop
async def test_new_definitions_of_other_servers_are_served() -> None:
    class Behind(Shelf):
        async def settle(self) -> None:
            self.catalog.current = catalog()

    async with serving(Behind(LiveCatalog(Catalog()))) as server, connected(server) as client:
        assert (await client.ask("GET", COLLECTION)).json["kind"] == "WidgetList"


@pytest.mark.rows("ERR-03", "SRV-002")
@pytest.mark.parametrize(
    ("path", "code", "settled"),
    [(f"{COLLECTION}/a/status", 200, 1), (f"{COLLECTION}/a/scale", 404, 1), ("/api/v1/namespaces/x/nope", 404, 0)],
    ids=["new", "none", "built in"],
)
@on_uvloop
async def test_new_subresource_of_another_server_is_served(path: str, code: int, settled: int) -> None:
    class Behind(Shelf):
        settled = 0

        async def settle(self) -> None:
            self.settled += 1
            self.catalog.current = known("status")

    def known(*names: str) -> Catalog:
        endpoints = {name: endpoint(name, ("get",)) for name in ("", *names)}
        return catalog().with_resource(
            resource(version(endpoints=endpoints, published=Published(deprecation_warning="old")))
        )

    shelf = Behind(LiveCatalog(known()))
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        answer = await client.ask("GET", path)
    assert (answer.code, shelf.settled) == (code, settled)
    assert answer.headers.get("Warning", "").count("old") == settled


@pytest.mark.rows("DIS-101", "DIS-106", "OAS-002")
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/apis", "example.com"),
        ("/apis/example.com", "example.com/v1"),
        ("/apis/example.com/v1", "widgets"),
        ("/openapi/v2", "/apis/example.com/v1/"),
        ("/openapi/v3", "apis/example.com/v1"),
        ("/", "/apis/example.com/v1"),
    ],
)
@on_uvloop
async def test_discovery_shows_definitions_of_other_workers(path: str, shown: str) -> None:
    class Behind(Shelf):
        async def catch_up(self) -> None:
            self.catalog.current = catalog()

    before = Catalog().with_resource(resource(NAMESPACES, builtin=True))
    async with serving(Behind(LiveCatalog(before))) as server, connected(server) as client:
        assert shown not in (await client.ask("GET", path)).body.decode()
    async with serving(Behind(LiveCatalog(before), has_peers=True)) as server, connected(server) as client:
        assert shown in (await client.ask("GET", path)).body.decode()


@pytest.mark.rows("DIS-106", "DIS-107")
@on_uvloop
async def test_aggregated_discovery() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        answer = await client.ask("GET", "/apis", Accept=f"{AGGREGATED},application/json")
        assert answer.headers["Content-Type"] == AGGREGATED
        assert answer.headers["Vary"] == "Accept"
        assert answer.json["kind"] == "APIGroupDiscoveryList"
        again = await client.ask("GET", "/apis", Accept=AGGREGATED, If_None_Match=answer.headers["ETag"])
        assert (again.code, again.body) == (304, b"")
        assert (await client.ask("GET", "/api", Accept=AGGREGATED)).json["items"][0]["versions"][0]["version"] == "v1"
        peers = AGGREGATED + ";profile=nopeer"
        assert (await client.ask("GET", "/apis", Accept=peers)).json["kind"] == "APIGroupDiscoveryList"
        assert (await client.ask("GET", "/apis", Accept="application/json")).json["kind"] == "APIGroupList"
        assert (await client.ask("GET", "/apis", Accept="text/html")).code == 406
        yaml_answer = await client.ask("GET", "/apis", Accept="application/yaml")
        assert yaml_answer.headers["Content-Type"] == "application/yaml"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        (AGGREGATED, True),
        (f"application/json, {AGGREGATED}", True),
        (f"application/json;q=0.5, {AGGREGATED}", True),
        (AGGREGATED.replace("v2", "v2beta1"), False),
        (AGGREGATED.replace("v2", "v2beta1") + "," + AGGREGATED, True),
        ("*/*", False),
    ],
)
def test_accept_selects_aggregated_discovery(accept: str, wanted: bool) -> None:
    assert bool(published.wants_aggregated(accept)) is wanted


@pytest.mark.parametrize(
    ("at", "until"),
    [("2026-11-28", "2027-11-28"), ("2027-03-01", "2028-03-01"), ("2028-02-28", "2029-02-28"),
     ("2028-02-29", "2029-03-01")],
)  # fmt: skip
def test_expiry_is_one_calendar_year_later(at: str, until: str) -> None:
    assert published.in_a_year(datetime.fromisoformat(at)) == datetime.fromisoformat(until)


@pytest.mark.rows("OAS-001", "OAS-002")
@on_uvloop
async def test_openapi_documents_are_cached_and_redirected() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        index = (await client.ask("GET", "/openapi/v3")).json["paths"]
        url = index["apis/example.com/v1"]["serverRelativeURL"]
        answer = await client.ask("GET", url)
        assert answer.headers["Cache-Control"] == "public, immutable"
        assert "Expires" in answer.headers
        assert (await client.ask("GET", url, If_None_Match=answer.headers["ETag"])).code == 304
        moved = await client.ask("GET", url.partition("?")[0] + "?hash=OLD")
        assert (moved.code, moved.headers["Location"]) == (301, url)
        assert (await client.ask("GET", url.partition("?")[0])).headers["Cache-Control"] == "no-cache, private"
        assert (await client.ask("GET", "/openapi/v3/apis/none/v1")).code == 404
        name = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        proto = await client.ask("GET", "/openapi/v2", Accept=name)
        assert (proto.code, proto.headers["Content-Type"]) == (200, V2_PROTOBUF)
        assert (await client.ask("GET", "/openapi/v2", Accept="text/html")).code == 406


@pytest.mark.rows("SRV-016")
@on_uvloop
async def test_deprecated_versions_warn() -> None:
    shelf = Shelf()
    shelf.put("a")
    old = version(published=Published(deprecation_warning='example.com/v1 Widget is deprecated; use "v2"'))
    shelf.catalog.current = shelf.catalog.current.with_resource(resource(old))
    async with serving(shelf) as server, connected(server) as client:
        for path in (COLLECTION, f"{COLLECTION}/a?resourceVersion=0", f"{COLLECTION}/zz"):
            answer = await client.ask("GET", path)
            assert answer.headers["Warning"] == r'299 - "example.com/v1 Widget is deprecated; use \"v2\""'
        client.send("GET", f"{COLLECTION}?watch=true")
        assert "Warning" in (await client.head())[1]


async def read_kind(client: Client, accept: str, path: str) -> str:
    found: str = (await client.ask("GET", path, Accept=accept)).json["kind"]
    return found


@pytest.mark.rows("TAB-001", "TAB-004", "PAR-001", "SRV-018", "NEG-007")
@on_uvloop
async def test_representations_follow_accept() -> None:
    shelf = Shelf()
    shelf.put("a", x=1)
    shelf.put("b", x=2)
    one, table = f"{COLLECTION}/a", "application/json;as=Table;v=v1;g=meta.k8s.io"
    partial = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"
    async with serving(shelf) as server, connected(server) as client:
        answer = (await client.ask("GET", one, Accept=table)).json
        assert (answer["kind"], answer["metadata"]) == ("Table", {"resourceVersion": "11"})
        assert [row["cells"] for row in answer["rows"]] == [["a", 1]]
        listed = (await client.ask("GET", f"{COLLECTION}?limit=1", Accept=table)).json
        assert listed["metadata"] == {"resourceVersion": "12", "continue": "next", "remainingItemCount": 1}
        full = (await client.ask("GET", f"{COLLECTION}?includeObject=Object", Accept=table)).json
        assert full["rows"][1]["object"]["spec"] == {"x": 2}
        none = (await client.ask("GET", f"{COLLECTION}?includeObject=None", Accept=table)).json
        assert none["rows"][0]["object"] is None
        bad = await client.ask("GET", f"{COLLECTION}?includeObject=All", Accept=table)
        assert (bad.code, bad.json["message"]) == (
            400,
            'Unable to convert to Table as requested: includeObject: Invalid value: "All": '
            "must be 'Metadata', 'Object', 'None', or empty",
        )
        assert await read_kind(client, partial.format(""), one) == "PartialObjectMetadata"
        assert await read_kind(client, partial.format("List"), COLLECTION) == "PartialObjectMetadataList"
        wrong = await client.ask("GET", COLLECTION, Accept=partial.format(""))
        assert (wrong.code, wrong.json["message"]) == (
            406,
            "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)",
        )
        assert (await client.ask("GET", one, Accept=partial.format("List"))).json["message"] == "content is not a list"
        proto = await client.ask("GET", one, Accept=partial.format("").replace("json", "vnd.kubernetes.protobuf"))
        assert proto.body.startswith(b"k8s\x00")
        for method in ("DELETE", "PUT"):
            refused = await client.ask(method, f"{one}?includeObject=All", b"{}", Accept=table)
            assert (refused.code, refused.json["message"], shelf.bodies) == (400, bad.json["message"], [])
        gone = await client.ask("DELETE", one, Accept=table)
        assert gone.json["kind"] == "Status"
        missing = await client.ask("GET", f"{COLLECTION}/zz", Accept=table)
        assert (missing.code, missing.body[:2]) == (404, b"{\n")
        in_yaml = await client.ask("GET", f"{COLLECTION}/zz", Accept="application/yaml")
        assert b"kind: Status" in in_yaml.body
        in_proto = await client.ask("GET", one, Accept="application/vnd.kubernetes.protobuf")
        assert (in_proto.code, in_proto.body[:4]) == (406, b"k8s\x00")


@pytest.mark.rows("SRV-018", "NEG-002")
@on_uvloop
async def test_lists_are_encoded_as_accepted() -> None:
    shelf = Shelf()
    for name in ("a", "b"):
        shelf.put(name, "", "namespaces")
    async with serving(shelf) as server, connected(server) as client:
        empty = await client.ask("GET", COLLECTION)
        assert empty.json == {
            "apiVersion": "example.com/v1",
            "items": [],
            "kind": "WidgetList",
            "metadata": {"continue": "", "resourceVersion": "12"},
        }
        typed = await client.ask("GET", "/api/v1/namespaces")
        assert typed.json["metadata"] == {"resourceVersion": "12"}
        assert [sorted(item) for item in typed.json["items"]] == [["metadata", "spec"]] * 2
        proto = await client.ask("GET", "/api/v1/namespaces", Accept="application/vnd.kubernetes.protobuf")
        assert proto.headers["Content-Type"] == "application/vnd.kubernetes.protobuf"
        in_yaml = await client.ask("GET", "/api/v1/namespaces", Accept="application/yaml")
        assert yaml.safe_load(in_yaml.body)["items"][0]["metadata"]["name"] == "a"
        pretty = await client.ask("GET", "/api/v1/namespaces?pretty=1")
        assert pretty.body.startswith(b"{\n  ")
        assert orjson.loads(pretty.body)["kind"] == "NamespaceList"
