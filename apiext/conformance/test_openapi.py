"""OpenAPI over HTTP: documents, caching, encodings, and invalid requests."""

from __future__ import annotations

import gzip
import random
import re
import threading
from email.utils import formatdate, parsedate_to_datetime
from typing import Any

import pytest

from apiext.conformance.support.definitions import definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until

V2 = "application/com.github.proto-openapi.spec.v2{}v1.0+protobuf"
V3 = "application/com.github.proto-openapi.spec.v3{}v1.0+protobuf"
OWN = "/openapi/v3/apis/apiextensions.k8s.io/v1"
AGGREGATED = pytest.mark.differs("an aggregator sends the index without an ETag")
SINGLE = ["api", "apis", "version", "api/v1", "apis/apiextensions.k8s.io", "apis/apiextensions.k8s.io/v1"]


def url_of(api: Client, key: str) -> str:
    """Return the URL of a document, including its hash, from the index."""
    return str(api.get("/openapi/v3").expect(200)["paths"][key]["serverRelativeURL"])


@pytest.fixture
def lag(foreign: bool) -> float:
    """Return the seconds within which documents show a change.

    This is 0 for this project, else an aggregator's interval.
    """
    return 30.0 if foreign else 0.0


def published(api: Client, group: str, lag: float, version: str = "v1") -> dict[str, Any]:
    """Wait until the index and the documents contain a version.

    Return the OpenAPI v3 document of this version.
    """
    key = f"apis/{group}/{version}"
    until(lambda: key in api.get("/openapi/v3").expect(200)["paths"], f"{key} is in the index", lag)
    until(lambda: f"/{key}/" in api.get("/openapi/v2").text, f"{key} is in OpenAPI v2", lag)
    found: dict[str, Any] = api.get(url_of(api, key)).expect(200)
    return found


def model(group: str, kind: str = "Widget", version: str = "v1") -> str:
    return ".".join([*reversed(group.split(".")), version, kind])


# --- OpenAPI v3 ---


@pytest.mark.rows("SEL-004")
def test_kinds_and_lists_tell_their_selectable_fields(api: Client, lag: float) -> None:
    fields = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]
    text = {"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": text}}}
    group = serve(api, schema=schema, selectableFields=fields).group
    third = published(api, group, lag)["components"]["schemas"]
    second = api.get("/openapi/v2").expect(200)["definitions"]
    for models in (third, second):
        for kind in ("Widget", "WidgetList"):
            found = models[model(group, kind)]["x-kubernetes-selectable-fields"]
            assert found == [{"fieldPath": "spec.color"}, {"fieldPath": "spec.size"}]
    protobuf = api.get("/openapi/v2", {"Accept": V2.format("@")}).raw
    assert b"- fieldPath: spec.color\n- fieldPath: spec.size\n" in protobuf, "extensions are YAML in block style"


@pytest.mark.rows("OAS-002", "OAS-003", "OAS-006", "OAS-008")
def test_openapi_v3_has_the_fields_that_kubectl_needs(api: Client, lag: float) -> None:
    widgets = serve(api)
    document = published(api, widgets.group, lag)
    schema = document["components"]["schemas"][model(widgets.group)]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": widgets.group, "version": "v1", "kind": "Widget"}]
    assert schema["properties"]["spec"]["properties"]["size"] == {"type": "integer", "minimum": 0}
    patch = document["paths"][f"/apis/{widgets.group}/v1/namespaces/{{namespace}}/widgets/{{name}}"]["patch"]
    assert "fieldValidation" in [it.get("name") for it in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Widget"


@pytest.mark.rows("OAS-002", "OAS-003", "OAS-005", "OAS-008")
@pytest.mark.needs("/apis")
def test_fields_of_documents_are_in_upstreams_order(api: Client, lag: float) -> None:
    widgets = serve(api)
    third = published(api, widgets.group, lag)
    second = api.get("/openapi/v2").expect(200)
    path = f"/apis/{widgets.group}/v1/namespaces/{{namespace}}/widgets/{{name}}"
    for document, order in ((third, ["group", "version", "kind"]), (second, ["group", "kind", "version"])):
        assert list(document["paths"][path]["get"]["x-kubernetes-group-version-kind"]) == order
    assert (
        b"group: %b\nkind: Widget\nversion: v1\n" % widgets.group.encode()
        in api.get("/openapi/v2", {"Accept": V2.format("@")}).raw
    )
    name = model(widgets.group)
    for schema in (third["components"]["schemas"][name], second["definitions"][name]):
        assert list(schema["x-kubernetes-group-version-kind"][0]) == ["group", "kind", "version"]
        assert list(schema["properties"])[:3] == ["apiVersion", "kind", "metadata"]


@pytest.mark.rows("OAS-004", "OAS-005", "OAS-010")
def test_empty_examples_are_omitted_but_empty_documentation_is_not(api: Client, lag: float) -> None:
    examples = {"a": "", "b": [], "c": {}, "d": 0, "e": False, "f": [""], "g": {"x": None}}
    properties: dict[str, Any] = {name: {"type": "string", "example": value} for name, value in examples.items()}
    properties["x"] = {"type": "string", "externalDocs": {"url": ""}}
    group = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": properties}}).group
    third = published(api, group, lag)["components"]["schemas"]
    # upstream: ``example`` is a Go interface, which is omitted if its JSON is "", [] or {}; ``externalDocs`` is a
    # pointer, which is omitted only if it is nil
    for models in (third, api.get("/openapi/v2").expect(200)["definitions"]):
        shown = models[model(group)]["properties"]
        assert {name: it["example"] for name, it in shown.items() if "example" in it} == {
            name: examples[name] for name in "defg"
        }
        assert shown["x"] == {"type": "string", "externalDocs": {}}
    # the definition is deleted, since kube-apiserver answers 503 for documents in protobuf while it exists
    api.delete(f"{DEFINITIONS}/widgets.{group}").expect(200)


@pytest.mark.rows("OAS-007", "OAS-008")
@pytest.mark.needs("/api/v1")
def test_operations_of_built_in_kinds(api: Client) -> None:
    core = api.get("/openapi/v3/api/v1").expect(200)["paths"]
    listing = core["/api/v1/namespaces/{namespace}/configmaps"]["get"]
    assert listing["description"] == "list or watch objects of kind ConfigMap"
    media_types = list(listing["responses"]["200"]["content"])
    assert media_types == sorted(media_types)
    for plural, kind in (
        ("services", "io.k8s.api.core.v1.Service"),
        ("serviceaccounts", "io.k8s.api.core.v1.ServiceAccount"),
        ("configmaps", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    ):
        content = core[f"/api/v1/namespaces/{{namespace}}/{plural}/{{name}}"]["delete"]["responses"]["200"]["content"]
        assert {one["schema"]["$ref"] for one in content.values()} == {f"#/components/schemas/{kind}"}


@pytest.mark.rows("OAS-002", "OAS-011")
@pytest.mark.parametrize("key", SINGLE)
@pytest.mark.needs("/api/v1")
def test_the_index_lists_what_upstream_lists(api: Client, key: str) -> None:
    url = url_of(api, key)
    assert re.fullmatch(rf"/openapi/v3/{re.escape(key)}\?hash=[0-9A-F]{{128}}", url)
    document = api.get(url).expect(200)
    assert document["openapi"] == "3.0.0"
    assert document["paths"]
    assert document["components"]["schemas"]


@pytest.mark.rows("OAS-002")
def test_a_url_with_its_hash_is_immutable(api: Client) -> None:
    url = url_of(api, "version")
    answer = api.get(url)
    assert answer.headers["cache-control"] == "public, immutable"
    year = parsedate_to_datetime(answer.headers["expires"]) - parsedate_to_datetime(answer.headers["date"])
    assert 364 <= year.days <= 366
    assert answer.headers["etag"] == '"' + url.partition("=")[2] + '"'
    assert "accept" in answer.headers["vary"].lower()
    plain = api.get(url.partition("?")[0])
    assert (plain.raw, plain.headers["cache-control"]) == (answer.raw, "no-cache, private")
    assert "expires" not in plain.headers


@pytest.mark.rows("OAS-002")
@pytest.mark.parametrize("given", ["x", "0" * 128, "%00%ff", "../../etc", "\u00e9", "a" * 5000])
def test_a_wrong_hash_redirects_to_the_current_hash(api: Client, given: str) -> None:
    url = url_of(api, "version")
    moved = api.request("GET", "/openapi/v3/version", hash=given)
    assert (moved.status, moved.raw, moved.headers["location"]) == (301, b"", url)


@pytest.mark.rows("OAS-002")
def test_an_empty_hash_is_ignored(api: Client) -> None:
    assert api.request("GET", "/openapi/v3/version", hash="").status == 200


@pytest.mark.rows("OAS-002")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/openapi/v3", marks=AGGREGATED),
        "/openapi/v3/version",
        OWN,
        "/openapi/v2",
    ],
)
def test_unchanged_documents_are_not_sent_again(api: Client, path: str) -> None:
    def known() -> bool:
        answer = api.get(path)
        tag, date = answer.headers["etag"], answer.headers["last-modified"]
        asked = [{"If-None-Match": tag}, {"If-None-Match": f'"x", W/{tag}'}, {"If-Modified-Since": date}]
        return all((found.status, found.raw) == (304, b"") for found in (api.get(path, one) for one in asked))

    # a retry may be necessary, since other tests change the served groups meanwhile
    until(known, "each condition is answered with 304", within=5)


@pytest.mark.rows("OAS-002")
@pytest.mark.parametrize(
    "asked",
    [
        {"If-None-Match": "x"},
        {"If-None-Match": '"'},
        {"If-None-Match": '"x"', "If-Modified-Since": formatdate(usegmt=True)},
        {"If-Modified-Since": "yesterday"},
        {"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"},
        {"If-Modified-Since": "Thu, 99 Jan 99999 99:99:99 GMT"},
    ],
)
def test_conditions_that_do_not_hold_change_nothing(api: Client, asked: dict[str, str]) -> None:
    for path in ("/openapi/v2", "/openapi/v3", OWN):
        assert api.get(path, asked).status == 200


@pytest.mark.rows("OAS-002")
@pytest.mark.parametrize("mark", ["@", "."])
def test_v3_in_protobuf(api: Client, mark: str) -> None:
    json, protobuf = api.get(OWN), api.get(OWN, {"Accept": V3.format(mark)})
    assert (protobuf.status, protobuf.headers["content-type"]) == (200, V3.format("."))
    assert protobuf.raw.startswith(b"\x0a\x053.0.0\x12")
    assert protobuf.headers["etag"] == json.headers["etag"]
    for name in json.expect(200)["components"]["schemas"]:
        assert name.encode() in protobuf.raw


@pytest.mark.rows("OAS-001", "OAS-002")
@pytest.mark.parametrize(
    ("accept", "code", "kind"),
    [
        ("", 200, "json"),
        ("*/*", 200, "json"),
        ("application/*", 200, "json"),
        ("text/html,application/json;q=0.1", 200, "json"),
        ("{protobuf};q=0.1,application/json;q=0.9", 200, "json"),
        ("{protobuf},application/json", 200, "protobuf"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", 200, "json"),
        ("text/html", 406, ""),
        ("application/yaml", 406, ""),
        ("application/xml, image/png", 406, ""),
        pytest.param("nonsense", 406, "", marks=pytest.mark.differs("OpenAPI v3 is then a 200 without a body")),
    ],
)
def test_media_types_of_openapi_documents(api: Client, accept: str, code: int, kind: str) -> None:
    for path, name in (("/openapi/v2", V2), (OWN, V3)):
        answer = api.get(path, {"Accept": accept.format(protobuf=name.format("@"))})
        assert answer.status == code
        assert "accept" in answer.headers["vary"].lower().replace(",", " ").split()
        assert answer.headers.get("content-type", "").endswith(kind)
        assert bool(answer.raw) is (code == 200)


@pytest.mark.rows("OAS-002", "OAS-012")
@pytest.mark.parametrize(
    "path",
    [
        "/openapi",
        "/openapi/",
        "/openapi/v1",
        "/openapi/v2/",
        "/openapi/v2/x",
        "/openapi/v3/",
        "/openapi/v3/x",
        "/openapi/v3/apis/none.example.com/v1",
        "/openapi/v3/apis/apiextensions.k8s.io/v9",
        "/openapi/v3/apis/apiextensions.k8s.io/v1/x",
        "/openapi/v3/apis/apiextensions.k8s.io/v1/",
        "/openapi/v3//apis",
        "/openapi/v3/%2e%2e/v2",
    ],
)
@pytest.mark.needs("/apis")
def test_missing_documents_are_a_404(api: Client, path: str) -> None:
    for query in ("", "?hash=X"):
        answer = api.get(path + query)
        assert answer.status == 404
        assert (answer.raw == b"") is path.startswith("/openapi/v3/")


# --- OpenAPI v2 ---


@pytest.mark.rows("OAS-001")
@pytest.mark.needs("/apis")
def test_openapi_v2_is_served_for_old_kubectls(api: Client, lag: float) -> None:
    widgets = serve(api)
    published(api, widgets.group, lag)
    name = model(widgets.group)
    answer = api.get("/openapi/v2")
    assert answer.headers["content-type"] == "application/json"
    document = answer.expect(200)
    assert name in document["definitions"]
    assert {"/apis/", "/api/", "/version/", "/apis/apiextensions.k8s.io/v1/"} <= document["paths"].keys()
    for mark in ("@", "."):
        protobuf = api.get("/openapi/v2", {"Accept": V2.format(mark)})
        assert (protobuf.status, protobuf.headers["content-type"]) == (200, V2.format("."))
        assert name.encode() in protobuf.raw
    assert {"etag", "last-modified", "vary"} <= answer.headers.keys()
    assert re.fullmatch('"[0-9A-F]{128}"', answer.headers["etag"])


@pytest.mark.rows("OAS-001")
def test_every_answer_of_openapi_v2_has_a_vary_header(api: Client) -> None:
    # upstream: OpenAPI v2 is compressed; its compressor adds the header Vary to any answer
    def told(code: int, **asked: str) -> bool:
        answer = api.get("/openapi/v2", {name.replace("_", "-"): value for name, value in asked.items()})
        assert answer.headers["vary"].replace("\n", ", ") == "Accept-Encoding, Accept"
        return answer.status == code

    assert told(200)
    assert told(200, Accept_Encoding="gzip")
    assert told(406, Accept="text/html")
    until(lambda: told(304, If_None_Match=api.get("/openapi/v2").headers["etag"]), "nothing has changed", within=5)


@pytest.mark.rows("OAS-001")
@pytest.mark.parametrize(
    "path", ["/openapi/v2", pytest.param("/openapi/v3/api/v1", marks=pytest.mark.differs("only v2 is compressed"))]
)
def test_large_documents_are_compressed_for_clients_that_accept_gzip(api: Client, path: str) -> None:
    def same() -> bool:
        plain, packed = api.get(path), api.get(path, {"Accept-Encoding": "gzip"})
        if plain.headers["etag"] != packed.headers["etag"]:
            return False  # another test changed the served groups
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.raw) < len(plain.raw) / 3
        assert "accept-encoding" in packed.headers["vary"].lower()
        return gzip.decompress(packed.raw) == plain.raw

    until(same, "both forms are of one state", within=10)


# --- published documents follow the definition ---


@pytest.mark.rows("OAS-009")
def test_only_changes_of_the_schema_change_the_document(api: Client, lag: float) -> None:
    widgets = serve(api)
    published(api, widgets.group, lag)
    key, name = f"apis/{widgets.group}/v1", f"{DEFINITIONS}/widgets.{widgets.group}"
    before = url_of(api, key)
    stored = api.get(name).expect(200)
    stored["metadata"]["annotations"] = {"a": "b"}
    stored = api.put(name, stored).expect(200)
    assert url_of(api, key) == before
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "Something else."
    api.put(name, stored).expect(200)
    after = until(lambda: (now := url_of(api, key)) != before and now, "the hash changes", within=max(lag, 1))
    schemas = api.get(after).expect(200)["components"]["schemas"]
    assert schemas[model(widgets.group)]["description"] == "Something else."

    def told() -> bool:
        definitions = api.get("/openapi/v2").expect(200)["definitions"]
        return bool(definitions[model(widgets.group)].get("description") == "Something else.")

    until(told, "OpenAPI v2 changes", lag)
    assert api.get(before).headers["location"] == after


@pytest.mark.rows("OAS-009")
def test_a_change_of_one_group_leaves_the_others_alone(api: Client, lag: float) -> None:
    quiet, changing = serve(api), serve(api)
    published(api, quiet.group, lag)
    before = url_of(api, f"apis/{quiet.group}/v1")
    api.patch(f"{DEFINITIONS}/widgets.{changing.group}", {"spec": {"names": {"shortNames": ["w9"]}}}).expect(200)
    assert url_of(api, f"apis/{quiet.group}/v1") == before


@pytest.mark.rows("OAS-003", "OAS-012")
@pytest.mark.differs("the document of a version stays until its definition is deleted")
def test_the_document_of_a_version_that_is_no_longer_served_is_deleted(api: Client) -> None:
    wanted = definition(fresh_group())
    wanted["spec"]["versions"].append({**wanted["spec"]["versions"][0], "name": "v2", "storage": False})
    group = establish(api, wanted)["spec"]["group"]
    assert api.get(f"/openapi/v3/apis/{group}/v2").status == 200
    name = f"{DEFINITIONS}/widgets.{group}"
    stored = api.get(name).expect(200)
    stored["spec"]["versions"][1]["served"] = False
    api.put(name, stored).expect(200)
    until(lambda: api.get(f"/openapi/v3/apis/{group}/v2").status == 404, "the document is gone", within=2)
    assert f"apis/{group}/v2" not in api.get("/openapi/v3").expect(200)["paths"]
    assert model(group, version="v2") not in api.get("/openapi/v2").expect(200)["definitions"]
    assert api.get(f"/openapi/v3/apis/{group}/v1").status == 200


@pytest.mark.rows("OAS-003", "OAS-005")
def test_a_schema_that_preserves_unknown_fields_is_a_bare_object_in_v2(api: Client, lag: float) -> None:
    group = fresh_group()
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    establish(api, definition(group, schema={"openAPIV3Schema": anything}))
    v3 = published(api, group, lag)["components"]["schemas"][model(group)]
    gvk = [{"group": group, "version": "v1", "kind": "Widget"}]
    v2 = api.get("/openapi/v2").expect(200)["definitions"][model(group)]
    assert v2 == {"type": "object", "x-kubernetes-group-version-kind": gvk}
    assert v3["x-kubernetes-preserve-unknown-fields"] is True
    assert {"apiVersion", "kind", "metadata"} == v3["properties"].keys()


@pytest.mark.rows("OAS-009")
@pytest.mark.differs("the counters of OpenAPI regenerations stay 0")
@pytest.mark.has("metrics of one process")
def test_regenerations_are_counted(api: Client) -> None:
    widgets = serve(api)
    api.get(f"/openapi/v3/apis/{widgets.group}/v1").expect(200)
    api.get("/openapi/v2").expect(200)
    metrics = api.get("/metrics").text
    crd = f"widgets.{widgets.group}"
    assert f'apiextensions_openapi_v2_regeneration_count{{crd="{crd}",reason="add"}} 1' in metrics
    labels = f'group="{widgets.group}",version="v1",crd="{crd}",reason="add"'
    assert f"apiextensions_openapi_v3_regeneration_count{{{labels}}} 1" in metrics


@pytest.mark.rows("OAS-001", "OAS-002")
def test_concurrent_requests_get_the_same_document(api: Client, lag: float) -> None:
    widgets = serve(api)
    if lag:  # without a lag, the server computes documents on request
        published(api, widgets.group, lag)
    found: list[Any] = []

    def ask() -> None:
        answer = api.get(f"/openapi/v3/apis/{widgets.group}/v1")
        found.append((answer.status, answer.headers.get("etag"), answer.raw))

    askers = [threading.Thread(target=ask) for _ in range(20)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(30)
    assert len(found) == 20
    assert len(set(found)) == 1
    assert found[0][0] == 200


@pytest.mark.rows("OAS-001", "OAS-002", "DIS-106")
def test_no_header_makes_documents_fail(api: Client, foreign: bool) -> None:
    dice = random.Random(5)
    bits = [
        "application/json", "application/yaml", "*/*", "*", "a/b/c", "text/html", ";g=apidiscovery.k8s.io", ";v=v2",
        ";as=APIGroupDiscoveryList", ";q=nan", ";q=inf", ";q=-1", ";q=", ";=", ",", " ", '"', ";stream=watch",
        ";pretty=1", V3.format("@"), V2.format("."), "%00", "\xff",
    ]  # fmt: skip
    conditions = ["", "*", '"', "W/", ",", '"x"', "x" * 5000, "Mon, 01 Jan 0001 00:00:00 GMT", "9" * 30]
    paths = ["/api", "/apis", "/api/v1", "/apis/apiextensions.k8s.io", "/openapi/v2", "/openapi/v3", OWN]
    for _ in range(300):
        headers = {
            "Accept": "".join(dice.choices(bits, k=dice.randint(0, 6))),
            dice.choice(["If-None-Match", "If-Modified-Since", "Range", "Accept-Encoding"]): dice.choice(conditions),
        }
        path = dice.choice(paths)
        codes = {200, 304, 406} | ({416} if foreign else set())  # this server ignores Range, see docs/DIFFERENCES.md
        assert api.get(path, headers).status in codes, (path, headers)
