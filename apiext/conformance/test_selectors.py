"""Selectors for labels, names and selectable fields, on large and small collections."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import SPEC_SCHEMA, Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, MERGE, Client

MANY = 320  # number of objects; for collections of this size, the server uses indexes
FIELDS = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.flag"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "color": {"type": "string"},
                "size": {"type": "integer"},
                "flag": {"type": "boolean"},
                "host": {"type": "string"},
            },
        }
    },
}
COLORS = ("red", "green", "blue", None)
LABELS = ("a", "b", None)


@pytest.fixture(scope="module")
def many(request: pytest.FixtureRequest) -> Resource:
    """A collection that is large enough for indexes; the tests of this module only read it."""
    api = request.getfixturevalue("server").client()
    widgets = serve(api, schema={"openAPIV3Schema": SCHEMA}, selectableFields=FIELDS)
    for number in range(MANY):
        color, label = COLORS[number % 4], LABELS[number % 3]
        body = widgets.make(f"w{number:03}", size=number % 7, flag=number % 2 == 0)
        if color:
            body["spec"]["color"] = color
        body["metadata"]["labels"] = {"n": str(number)} | ({"kind": label} if label else {})
        api.post(widgets.path("", "default" if number % 5 else "kube-system"), body).expect(201)
    return widgets


def numbers(items: list[dict[str, Any]]) -> list[int]:
    return [int(item["metadata"]["name"][1:]) for item in items]


WANTED: dict[str, tuple[dict[str, str], Any]] = {
    "color": ({"fieldSelector": "spec.color=red"}, lambda n: n % 4 == 0),
    "not color": ({"fieldSelector": "spec.color!=red"}, lambda n: n % 4 != 0),
    "no color": ({"fieldSelector": "spec.color="}, lambda n: n % 4 == 3),
    "number": ({"fieldSelector": "spec.size==3"}, lambda n: n % 7 == 3),
    "boolean": ({"fieldSelector": "spec.flag=true"}, lambda n: n % 2 == 0),
    "two fields": ({"fieldSelector": "spec.flag=true,spec.size!=3"}, lambda n: n % 2 == 0 and n % 7 != 3),
    "name": ({"fieldSelector": "metadata.name=w007"}, lambda n: n == 7),
    "not name": ({"fieldSelector": "metadata.name!=w007"}, lambda n: n != 7),
    "label": ({"labelSelector": "kind=a"}, lambda n: n % 3 == 0),
    "two labels": ({"labelSelector": "kind in (a,b),n=9"}, lambda n: n == 9),
    "label in": ({"labelSelector": "kind in (b,c)"}, lambda n: n % 3 == 1),
    "label notin": ({"labelSelector": "kind notin (b,c)"}, lambda n: n % 3 != 1),
    "label unequal": ({"labelSelector": "kind!=a"}, lambda n: n % 3 != 0),
    "label there": ({"labelSelector": "kind"}, lambda n: n % 3 != 2),
    "label not there": ({"labelSelector": "!kind"}, lambda n: n % 3 == 2),
    "greater": ({"labelSelector": "n>300"}, lambda n: n > 300),
    "less": ({"labelSelector": "n<20,kind=a"}, lambda n: n < 20 and n % 3 == 0),
    "both": ({"labelSelector": "kind=a", "fieldSelector": "spec.color=blue"}, lambda n: n % 12 == 6),
    "nothing": ({"labelSelector": "kind=nosuch"}, lambda n: False),
}


@pytest.mark.rows("SEL-001", "SEL-002", "SEL-005")
@pytest.mark.parametrize("case", WANTED)
def test_a_selective_list_of_a_large_collection(many: Resource, case: str) -> None:
    query, matches = WANTED[case]
    wanted = [n for n in range(MANY) if matches(n)]
    everywhere = many.api.get(many.path("", None), **query).expect(200)
    assert sorted(numbers(everywhere["items"])) == wanted
    inside = many.api.get(many.path(), **query).expect(200)
    assert numbers(inside["items"]) == [n for n in wanted if n % 5]
    again = many.api.get(many.path(), **query, resourceVersion="0").expect(200)
    assert again["items"] == inside["items"]


@pytest.mark.rows("SEL-002", "RV-005")
def test_a_selective_list_in_pages_is_the_whole_list(many: Resource) -> None:
    query = {"fieldSelector": "spec.color=red", "labelSelector": "kind!=b"}
    whole = many.api.get(many.path("", None), **query).expect(200)["items"]
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = many.api.get(many.path("", None), **query, limit=7, **{"continue": token}).expect(200)
        assert "remainingItemCount" not in page["metadata"]  # unknown, since the server counts no further matches
        found += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            break
        assert len(page["items"]) == 7
    assert found == whole


@pytest.mark.rows("SEL-002")
def test_an_index_follows_every_change(api: Client) -> None:
    widgets = serve(api, schema={"openAPIV3Schema": SCHEMA}, selectableFields=FIELDS)
    for number in range(260):
        widgets.create(f"w{number:03}", color="red")

    def colored(color: str) -> list[int]:
        return numbers(api.get(widgets.path(), fieldSelector=f"spec.color={color}").expect(200)["items"])

    assert len(colored("red")) == 260
    assert colored("blue") == []
    api.patch(widgets.path("w003"), {"spec": {"color": "blue"}}, MERGE).expect(200)
    api.delete(widgets.path("w004")).expect(200)
    widgets.create("w900", color="blue")
    assert colored("blue") == [3, 900]
    assert len(colored("red")) == 258
    api.patch(widgets.path("w003"), {"spec": {"color": None}}, MERGE).expect(200)
    assert colored("blue") == [900]
    assert colored("") == [3]


@pytest.mark.rows("SEL-003")
def test_each_version_has_fields_of_its_own(api: Client) -> None:
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": SCHEMA}, selectableFields=FIELDS[:1])
    wanted["spec"]["versions"].append(
        {
            "name": "v2",
            "served": True,
            "storage": False,
            "schema": {"openAPIV3Schema": {**SCHEMA, "description": "unlike the other, else upstream hoists them"}},
            "selectableFields": [{"jsonPath": ".spec.host"}],
        }
    )
    group = establish(api, wanted)["spec"]["group"]
    one, two = (Resource(api, group, "widgets", "Widget", version) for version in ("v1", "v2"))
    first = one.create("a", color="red", host="x")
    start = first["metadata"]["resourceVersion"]
    two.create("b", color="red", host="y")
    assert numbers_of(one, "spec.color=red") == ["a", "b"]
    assert numbers_of(two, "spec.host=y") == ["b"]
    for widgets, wrong in ((one, "spec.host=x"), (two, "spec.color=red")):
        text = api.get(widgets.path(), fieldSelector=wrong).expect(400)["message"]
        assert text == f"field label not supported: {wrong.partition('=')[0]}"
        assert api.get(widgets.path(), fieldSelector=wrong, watch="true").expect(400)["message"] == text
        assert api.delete(widgets.path(), fieldSelector=wrong).expect(400)["message"] == text
    with (
        api.watch(one.path(), resourceVersion=start, fieldSelector="spec.color=red") as colors,
        api.watch(two.path(), resourceVersion=start, fieldSelector="spec.host=y") as hosts,
    ):
        for watch, version in ((colors, "v1"), (hosts, "v2")):
            event = watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")
            assert event["object"]["apiVersion"] == f"{group}/{version}"
        api.patch(one.path("b"), {"spec": {"color": "blue"}}, MERGE).expect(200)
        gone, changed = colors.next(), hosts.next()
        assert (gone["type"], gone["object"]["spec"]["color"]) == ("DELETED", "red")  # the last state that matched
        assert (changed["type"], changed["object"]["spec"]["color"]) == ("MODIFIED", "blue")
        assert gone["object"]["metadata"]["resourceVersion"] == changed["object"]["metadata"]["resourceVersion"]
    api.delete(two.path(), fieldSelector="spec.host=y").expect(200)
    assert numbers_of(one, "metadata.name!=") == ["a"]
    api.delete(one.path(), fieldSelector="spec.color=red").expect(200)
    assert numbers_of(one, "metadata.name!=") == []


def numbers_of(widgets: Resource, selector: str) -> list[str]:
    found = widgets.api.get(widgets.path(), fieldSelector=selector).expect(200)
    return [item["metadata"]["name"] for item in found["items"]]


@pytest.mark.rows("SEL-002", "WRI-021")
def test_a_deletecollection_deletes_only_selected_objects(api: Client) -> None:
    widgets = serve(api, schema={"openAPIV3Schema": SCHEMA}, selectableFields=FIELDS)
    for number in range(6):
        widgets.create(f"w{number}", color="red" if number % 2 else "blue", size=number)
    query = {"fieldSelector": "spec.color=red,metadata.name!=w3", "labelSelector": "!x"}
    gone = api.delete(widgets.path(), **query, limit=9).expect(200)
    assert (gone["kind"], numbers(gone["items"])) == ("WidgetList", [1, 5])
    assert numbers(api.get(widgets.path()).expect(200)["items"]) == [0, 2, 3, 4]
    kept = api.delete(widgets.path(), dryRun="All").expect(200)
    assert len(kept["items"]) == 4
    assert len(api.get(widgets.path()).expect(200)["items"]) == 4


@pytest.mark.rows("SEL-002")
def test_many_watches_with_selectors_get_only_their_events(api: Client) -> None:
    widgets = serve(api, schema={"openAPIV3Schema": SCHEMA}, selectableFields=FIELDS)
    start = api.get(widgets.path()).expect(200)["metadata"]["resourceVersion"]
    watches = [
        api.watch(widgets.path(), resourceVersion=start, fieldSelector=f"spec.color=c{number}") for number in range(20)
    ]
    try:
        for number in range(20):
            widgets.create(f"w{number:02}", color=f"c{number}")
        for number in range(20):
            api.patch(widgets.path(f"w{number:02}"), {"spec": {"color": f"c{(number + 1) % 20}"}}, MERGE).expect(200)
        for number, watch in enumerate(watches):
            own, other = f"w{number:02}", f"w{(number - 1) % 20:02}"
            seen = [watch.next() for _ in range(3)]
            told = sorted((event["type"], event["object"]["metadata"]["name"]) for event in seen)
            assert told == sorted([("ADDED", own), ("DELETED", own), ("ADDED", other)])
    finally:
        for watch in watches:
            watch.close()


@pytest.mark.rows("SEL-006")
def test_a_name_in_the_selector_of_a_collection(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    assert numbers_of(widgets, "metadata.name=a") == ["a"]
    assert numbers_of(widgets, "metadata.name=a,metadata.name=b") == []
    assert numbers_of(widgets, "metadata.namespace=default,metadata.name=a") == ["a"]
    assert numbers_of(widgets, "metadata.namespace=other") == []


@pytest.mark.rows("SEL-001")
def test_a_cluster_scoped_resource_has_no_namespace_to_select(api: Client) -> None:
    things = serve(api, "things", scope="Cluster", schema={"openAPIV3Schema": SPEC_SCHEMA})
    text = api.get(things.path(), fieldSelector="metadata.namespace=x").expect(400)["message"]
    assert text == "field label not supported: metadata.namespace"


@pytest.mark.rows("SEL-001")
def test_a_cluster_scoped_built_in_kind_has_an_empty_namespace_to_select(api: Client) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    api.post(path, {"metadata": {"name": "selected"}})
    for namespace, found in (("", ["selected"]), ("x", [])):
        selector = f"metadata.name=selected,metadata.namespace={namespace}"
        items = api.get(path, fieldSelector=selector).expect(200)["items"]
        assert [item["metadata"]["name"] for item in items] == found


@pytest.mark.rows("SEL-006", "RV-015")
def test_a_watch_of_one_object_and_one_of_all_stay_apart(api: Client) -> None:
    widgets = serve(api)
    start = widgets.create("b")["metadata"]["resourceVersion"]
    named = widgets.path("a").replace("/v1/", "/v1/watch/")
    with (
        api.watch(widgets.path(), resourceVersion=start) as every,
        api.watch(named, resourceVersion=start) as one,
    ):
        api.patch(widgets.path("b"), {"spec": {"color": "red"}}, MERGE).expect(200)
        widgets.create("a")
        assert [every.next()["object"]["metadata"]["name"] for _ in range(2)] == ["b", "a"]
        assert one.next()["object"]["metadata"]["name"] == "a"


@pytest.mark.rows("MTR-001")
@pytest.mark.has("metrics of one process")
def test_calls_of_etcd_are_timed_by_operation_and_resource(many: Resource) -> None:
    labels = f'group="{many.group}",operation="create",resource="widgets"'
    line = f"etcd_request_duration_seconds_count{{{labels}}} {MANY}"
    assert line in many.api.get("/metrics").text.splitlines()


@pytest.mark.rows("MTR-001")
@pytest.mark.has("metrics of one process")
def test_sizes_of_bodies_are_counted_by_resource_and_verb(many: Resource) -> None:
    line = f'apiserver_request_body_size_bytes_count{{group="{many.group}",resource="widgets",verb="create"}} {MANY}'
    assert line in many.api.get("/metrics").text.splitlines()


@pytest.mark.rows("MTR-001")
@pytest.mark.has("metrics of one process")
def test_sizes_of_bodies_are_counted_by_verb(api: Client) -> None:
    things = serve(api, "things", schema={"openAPIV3Schema": SPEC_SCHEMA})
    made = api.post(things.path(), things.make("a")).expect(201)
    api.put(things.path("a"), made).expect(200)
    for content_type in (MERGE, APPLY):
        api.request("PATCH", f"{things.path('a')}?fieldManager=x", things.make("a"), {"Content-Type": content_type})
    for path in (things.path("a"), things.path()):
        api.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1"}).expect(200)
    counts = {"create": 1, "delete": 1, "delete_collection": 1, "patch": 2, "update": 1}
    head = f'apiserver_request_body_size_bytes_count{{group="{things.group}",resource="things",verb='
    lines = [line for line in api.get("/metrics").text.splitlines() if line.startswith(head)]
    assert sorted(lines) == [f'{head}"{verb}"}} {count}' for verb, count in counts.items()]


@pytest.mark.rows("SEL-005")
def test_an_error_of_a_long_label_prefix_has_the_limit_in_bytes(many: Resource) -> None:
    key = "p" * 254 + "/x"
    text = many.api.get(many.path(), labelSelector=key).expect(400)["message"]
    wrong = f'<nil>: Invalid value: "{key}": prefix part must be no more than 253 bytes'
    assert text == f"unable to parse requirement: {wrong}"
