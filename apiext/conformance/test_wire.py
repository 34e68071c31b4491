"""Unusual requests: a table of kube-apiserver's answers, and tests with several requests."""

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import Resource, definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, TABLE, Client
from apiext.conformance.support.waiting import until

PROTOBUF = "application/vnd.kubernetes.protobuf"
CASES = read_yaml(Path(__file__).parent / "wire.yaml")


def judged(case: dict[str, Any]) -> Any:
    """Return a case as a parameter of pytest, with a mark if kube-apiserver answers differently."""
    marks = [pytest.mark.differs(case["differs"])] if "differs" in case else []
    return pytest.param(case, id=case["name"], marks=marks)


@pytest.fixture(scope="module")
def widgets(request: pytest.FixtureRequest) -> Resource:
    """A kind with one object ``a``, which no test changes."""
    found = serve(request.getfixturevalue("server").client())
    found.create("a", color="red")
    return found


def filled(text: str, widgets: Resource) -> str:
    """Return a text with values in place of its placeholders."""
    places = {"objects": widgets.path(), "group": widgets.group, "crd": f"{DEFINITIONS}/widgets.{widgets.group}"}
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.rows(
    "ERR-01", "ERR-02", "ERR-03", "ERR-11", "ERR-14", "ERR-15", "WRI-007", "WRI-013", "WRI-020", "NEG-004"
)
@pytest.mark.parametrize("case", [judged(case) for case in CASES])
def test_wire(widgets: Resource, case: dict[str, Any]) -> None:
    method, path = filled(case["send"], widgets).split(" ")
    body = filled(case["body"], widgets).encode() if "body" in case else None
    answer = widgets.api.request(method, path, body, case.get("headers", {}))
    assert answer.status == case["code"], answer.raw[:1000]
    assert answer.headers["content-type"].startswith(case.get("type", "application/json"))
    if "message" in case:
        wanted, found = filled(case["message"], widgets), answer.json["message"]
        assert found.startswith(wanted[:-1]) if wanted.endswith("…") else found == wanted
    assert all(name in answer.json for name in case.get("has", ()))
    texts = [warning.removeprefix("299 - ")[1:-1].replace('\\"', '"') for warning in answer.warnings]
    assert texts == case.get("warnings", texts)


@pytest.mark.rows("WRI-021", "RV-005")
def test_a_collection_is_deleted_page_by_page(api: Client) -> None:
    widgets = serve(api)
    first = widgets.create("a")["metadata"]["resourceVersion"]
    for name in ("b", "c"):
        widgets.create(name)
    # upstream: the list of a deletecollection always has a limit, which makes its resourceVersion an exact revision
    # So the first request selects only the object that existed at the revision ``first``.
    gone = api.request("DELETE", widgets.path() + f"?dryRun=All&resourceVersion={first}").expect(200)
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a"]
    gone = api.request("DELETE", widgets.path() + "?limit=2").expect(200)
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "b"]
    assert gone["metadata"]["remainingItemCount"] == 1
    rest = api.request("DELETE", widgets.path(), None, {"Accept": TABLE}).expect(200)
    assert [row["cells"][0] for row in rest["rows"]] == ["c"]
    assert set(rest["metadata"]) == {"resourceVersion"}


@pytest.mark.rows("WRI-021")
def test_deleted_definitions_are_items_without_a_kind(api: Client) -> None:
    widgets = serve(api)
    query = f"?dryRun=All&fieldSelector=metadata.name%3Dwidgets.{widgets.group}"
    gone = api.request("DELETE", DEFINITIONS + query).expect(200)
    assert gone["kind"] == "CustomResourceDefinitionList"
    assert [set(item) for item in gone["items"]] == [{"metadata", "spec", "status"}]
    assert set(gone["metadata"]) == {"resourceVersion"}


@pytest.mark.rows("RV-014")
def test_a_watch_with_a_negative_timeout_ends_at_once(api: Client) -> None:
    widgets = serve(api)
    # upstream: a negative timeout ends the watch after the first events
    assert api.get(widgets.path() + "?watch=true&timeoutSeconds=-1").status == 200


@pytest.mark.parametrize(("more", "count"), [(9_999, 1), (10_000, 2)])
def test_a_query_of_more_than_ten_thousand_parameters_is_ignored(api: Client, more: int, count: int) -> None:
    widgets = serve(api)
    for name in "ab":
        widgets.create(name)
    # upstream: Go's net/url ignores all parameters of a query that has more than 10,000
    listed = api.get(f"{widgets.path()}?limit=1{'&a' * more}").expect(200)
    assert len(listed["items"]) == count


@pytest.mark.rows("PAR-001")
def test_a_watch_of_lists_ends_at_once(api: Client) -> None:
    widgets = serve(api)
    # a PartialObjectMetadataList cannot be an event; upstream: a watch of lists ends at once
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    path = widgets.path() + "?watch=true&timeoutSeconds=5"
    answer = until(
        lambda: (it := api.request("GET", path, None, accept)).status != 429 and it, "the cache of the server is filled"
    )
    assert (answer.status, answer.raw) == (200, b"")


@pytest.mark.rows("NEG-005")
@pytest.mark.parametrize("path", ["{objects}", "{objects}/a", "{objects}/zz", "{crd}", "/apis/{group}"])
def test_only_compact_documents_end_with_a_newline(widgets: Resource, path: str) -> None:
    raw = [widgets.api.request("GET", filled(path, widgets) + query).raw for query in ("", "?pretty=1")]
    assert [it[-1:] for it in raw] == [b"\n", b"}"]
    for kind in ("Table", "PartialObjectMetadata" + ("List" if path == "{objects}" else "")):
        accept = {"Accept": f"application/json;as={kind};v=v1;g=meta.k8s.io,application/json;pretty=1"}
        assert widgets.api.request("GET", filled(path, widgets) + "?pretty=1", None, accept).raw.endswith(b"}")


@pytest.mark.rows("RV-003")
def test_only_the_revision_0_disables_the_limit(widgets: Resource) -> None:
    api = widgets.api
    widgets = serve(api)
    for name in ("a", "b"):
        widgets.create(name)
    for text, match, found in (("0", {}, 2), ("00", {}, 1), ("00", {"resourceVersionMatch": "NotOlderThan"}, 1)):
        page = api.get(widgets.path(), resourceVersion=text, limit=1, **match).expect(200)
        assert len(page["items"]) == found
        assert int(page["metadata"]["resourceVersion"]) > 0


@pytest.mark.rows("TAB-001")
def test_a_table_of_no_definitions_has_null_for_rows(api: Client) -> None:
    # recorded: the convertor of definitions appends rows to a nil slice, so without objects its rows are null
    for query in ("", "&pretty=1"):
        found = api.request("GET", DEFINITIONS + "?labelSelector=no%3Dsuch" + query, None, {"Accept": TABLE})
        assert found.expect(200)["rows"] is None
    widgets = serve(api)
    assert api.request("GET", widgets.path(), None, {"Accept": TABLE}).expect(200)["rows"] == []


@pytest.mark.rows("WRI-021")
def test_a_deletecollection_continues_a_list_at_its_revision(api: Client) -> None:
    widgets = serve(api)
    for name in ("a", "b"):
        widgets.create(name)
    then = api.get(widgets.path()).expect(200)["metadata"]["resourceVersion"]
    api.delete(widgets.path("a")).expect(200)
    widgets.create("c")
    # upstream: a deletecollection may list objects that were deleted meanwhile
    # The continue token is for the revision ``then``. At that revision, a and b exist, and c does not.
    late = api.get(widgets.path(), resourceVersion=then, resourceVersionMatch="Exact", limit=1).expect(200)
    api.delete(widgets.path("b")).expect(200)
    rest = api.delete(widgets.path(), **{"continue": late["metadata"]["continue"]}).expect(200)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b"]
    assert [item["metadata"]["name"] for item in api.get(widgets.path()).expect(200)["items"]] == ["c"]


@pytest.mark.rows("WRI-001")
@pytest.mark.parametrize("revision", ["", "0", "00", "x", "-1", "1.0", "18446744073709551616", "1"])
def test_a_create_with_a_revision_is_refused(widgets: Resource, revision: str) -> None:
    # upstream: 0, or a text that is not an unsigned 64-bit integer, is treated as no resourceVersion
    for resource, path in ((widgets, widgets.path()), (None, DEFINITIONS)):
        body = resource.make("made") if resource is not None else definition(fresh_group())
        body["metadata"]["resourceVersion"] = revision
        made = widgets.api.post(path, body)
        if revision == "1":
            assert made.expect(500)["message"] == "resourceVersion should not be set on objects to be created"
            continue
        assert made.expect(201)["metadata"]["resourceVersion"] != revision
        widgets.api.delete(f"{path}/{body['metadata']['name']}").expect(200)


ZERO = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"


@pytest.mark.rows("WRI-005", "UPD-004")
def test_revisions_in_writes_are_compared_as_numbers(api: Client) -> None:
    # upstream: revisions are compared as numbers. A Scale may lack its revision, but must not have the revision 0.
    scale = {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}
    widgets = serve(api, subresources={"status": {}, **scale})
    made = widgets.create("a", size=1)["metadata"]["resourceVersion"]
    wanted = widgets.make("a", size=2)
    for text, code, says in (
        (f"0{made}", 200, ""),
        ("00", 422, ZERO),
        ("1.0", 500, 'strconv.ParseUint: parsing "1.0": invalid syntax'),
        (f"{2**64}", 500, f'strconv.ParseUint: parsing "{2**64}": value out of range'),
    ):
        wanted["metadata"]["resourceVersion"] = text
        answer = api.put(widgets.path("a") + "?dryRun=All", wanted).expect(code)
        assert not says or answer["message"].endswith(says)
    for text, code in (("", 200), ("0", 422), ("00", 422), (f"0{made}", 200)):
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}}
        body["metadata"] = {"name": "a", "resourceVersion": text}
        api.put(widgets.path("a") + "/scale?dryRun=All", body).expect(code)


@pytest.mark.rows("SRV-008", "WRI-005")
@pytest.mark.parametrize("revision", ["", "0", "1", "abc"])
def test_an_error_of_replicas_precedes_that_of_a_revision(api: Client, revision: str) -> None:
    scale = {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}
    widgets = serve(api, subresources={"status": {}, **scale})
    widgets.api.post(widgets.path(), widgets.make("a")).expect(201)
    metadata = {"resourceVersion": revision}
    for body, media_type in (
        ({"metadata": metadata}, MERGE),
        ([{"op": "add", "path": "/metadata/resourceVersion", "value": revision}], JSON_PATCH),
    ):
        refused = widgets.api.patch(widgets.path("a") + "/scale", body, media_type).expect(400)
        assert refused["message"] == 'the spec replicas field ".spec.size" cannot be empty'
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path, name = "/apis/apps/v1/namespaces/default/deployments", f"d-{secrets.token_hex(4)}"
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    api.post(path, {"metadata": {"name": name}, "spec": spec}).expect(201)
    refused = api.patch(f"{path}/{name}/scale", {"metadata": metadata, "spec": {"replicas": -1}}, MERGE).expect(422)
    assert refused["details"]["causes"][0]["field"] == "spec.replicas"
    api.delete(f"{path}/{name}").expect(200)


@pytest.mark.rows("SRV-001")
def test_objects_of_a_custom_resource_namespaces_are_in_the_namespace_of_their_name(api: Client) -> None:
    spaces = serve(api, "namespaces")
    path = f"/apis/{spaces.group}/v1/namespaces/default"
    made = api.post(path, spaces.make("default")).expect(201)
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("default", "default")
    assert api.get(path).expect(200) == made == api.get(spaces.path("default")).expect(200)
    assert api.get(f"{path}/status").expect(404)["details"]["kind"] == "namespaces"
    assert len(api.get(f"/apis/{spaces.group}/v1/namespaces").expect(200)["items"]) == 1
    api.delete(path).expect(200)


@pytest.mark.rows("NEG-003")
def test_protobuf_without_a_kind_has_the_kind_of_the_url(api: Client) -> None:
    path, name = "/api/v1/namespaces/default/configmaps", f"k-{secrets.token_hex(4)}"
    api.post(path, {"metadata": {"name": name}, "data": {"a": "b"}}).expect(201)
    whole = api.request("GET", f"{path}/{name}", headers={"Accept": PROTOBUF}).raw
    assert whole[4:5] == b"\x0a"  # field 1: apiVersion and kind
    rest = whole[6 + whole[5] :]
    # upstream: an apiVersion with two slashes, or with nothing after the slash, counts as absent
    for told in b"", b"\x0a\x00", b"\x0a\x04\x0a\x02v1", b"\x0a\x0b\x12\x09ConfigMap", b"\x0a\x07\x0a\x05a/b/c":
        sent = api.request("PUT", f"{path}/{name}", b"k8s\0" + told + rest, {"Content-Type": PROTOBUF})
        assert sent.expect(200)["data"] == {"a": "b"}, told
    refused = api.request("PUT", f"{path}/{name}", b"k8s\0\x0a\x08\x12\x06Secret" + rest, {"Content-Type": PROTOBUF})
    assert "Secret in version" in refused.expect(400)["message"]
    api.delete(f"{path}/{name}").expect(200)
