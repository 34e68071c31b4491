"""Lists: all pages show one revision, selectors apply, and large answers are compressed."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import DEFINITIONS, MERGE, Client
from apiext.conformance.support.waiting import until


def walk(api: Client, widgets: Resource, limit: int, **query: str) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        page = api.get(
            widgets.path(namespace=None), limit=limit, **query, **({"continue": token} if token else {})
        ).expect(200)
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        assert len(page["items"]) <= limit
        if not token:
            return names


@pytest.mark.rows("RV-005", "RV-008", "SRV-018")
def test_pages_add_up_to_the_list(api: Client) -> None:
    widgets = serve(api)
    for number in range(23):
        widgets.create(f"w{number:02}")
    whole = api.get(widgets.path()).expect(200)
    assert whole["kind"] == "WidgetList"
    names = [item["metadata"]["name"] for item in whole["items"]]
    assert names == sorted(names)
    for limit in (1, 5, 23, 24):
        assert walk(api, widgets, limit) == names
    first = api.get(widgets.path(), limit=5).expect(200)
    assert first["metadata"]["remainingItemCount"] == 18


@pytest.mark.rows("RV-005", "RV-017")
def test_all_pages_show_one_revision_despite_concurrent_writes(api: Client) -> None:
    widgets = serve(api)
    for number in range(30):
        widgets.create(f"w{number:02}")
    first = api.get(widgets.path(), limit=10).expect(200)
    widgets.create("w05x")
    widgets.create("zz")
    api.delete(widgets.path("w25")).expect(200)
    rest = api.get(widgets.path(), **{"continue": first["metadata"]["continue"]}).expect(200)
    names = [item["metadata"]["name"] for item in first["items"] + rest["items"]]
    assert names == [f"w{number:02}" for number in range(30)]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.rows("RV-001", "RV-003", "RV-017")
def test_a_list_shows_every_write_acknowledged_before_it(api: Client) -> None:
    widgets = serve(api)
    failures: list[str] = []

    def writer(letter: str) -> None:
        for number in range(20):
            made = widgets.create(f"{letter}{number}")
            seen = api.get(widgets.path()).expect(200)
            if made["metadata"]["name"] not in {item["metadata"]["name"] for item in seen["items"]}:
                failures.append(made["metadata"]["name"])
            if int(seen["metadata"]["resourceVersion"]) < int(made["metadata"]["resourceVersion"]):
                failures.append(f"revision of {made['metadata']['name']}")

    writers = [threading.Thread(target=writer, args=(letter,)) for letter in "abcd"]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert not failures


@pytest.mark.rows("RV-003", "RV-002")
def test_an_exact_revision_shows_the_past(api: Client) -> None:
    widgets = serve(api)
    then = widgets.create("a", color="red")["metadata"]["resourceVersion"]
    api.patch(widgets.path("a"), {"spec": {"color": "blue"}}).expect(200)
    widgets.create("b")
    past = api.get(widgets.path(), resourceVersion=then, resourceVersionMatch="Exact").expect(200)
    assert [(item["metadata"]["name"], item["spec"]["color"]) for item in past["items"]] == [("a", "red")]
    assert past["metadata"]["resourceVersion"] == then
    future = api.get(widgets.path(), resourceVersion="9999999999", resourceVersionMatch="NotOlderThan").expect(504)
    assert future["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.rows("RV-005")
def test_continue_tokens_after_a_change_of_the_definition(api: Client) -> None:
    def begins(token: str) -> Any:
        return json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))["start"]

    widgets = serve(api)
    for name in "abc":
        widgets.create(name)
    first = api.get(widgets.path(), limit=1).expect(200)["metadata"]
    assert begins(first["continue"]) == "/a\0"
    crd = f"{DEFINITIONS}/widgets.{widgets.group}"
    api.patch(crd, {"spec": {"names": {"shortNames": ["wg"]}}}, MERGE).expect(200)
    until(lambda: "wg" in str(api.get(f"/apis/{widgets.group}/v1").json), "the short name is there")
    second = api.get(widgets.path(), limit=1, **{"continue": first["continue"]}).expect(200)["metadata"]
    assert begins(second["continue"]) == "b\0"
    third = api.get(widgets.path(), **{"continue": second["continue"]}).expect(200)
    assert [item["metadata"]["name"] for item in third["items"]] == ["c"]
    assert begins(api.get(widgets.path(), limit=1).expect(200)["metadata"]["continue"]) == "/a\0"


@pytest.mark.rows("RV-003", "RV-005")
def test_a_list_by_metadata_name_ignores_its_limit(api: Client) -> None:
    widgets = serve(api)
    old = widgets.create("a", color="red")["metadata"]["resourceVersion"]
    new = api.patch(widgets.path("a"), {"spec": {"color": "blue"}}).expect(200)
    widgets.create("b")
    # upstream: a limit has an effect on a list of one object by name only with a continue token
    # So this list by name ignores the limit, and returns the object as it is now, not as it was at the old revision.
    listed = api.get(widgets.path(), fieldSelector="metadata.name=a", resourceVersion=old, limit=1).expect(200)
    assert (listed["items"], listed["metadata"]["continue"]) == ([new], "")
    match = {"resourceVersion": old, "resourceVersionMatch": "Exact"}
    (item,) = api.get(widgets.path(), fieldSelector="metadata.name=a", limit=1, **match).expect(200)["items"]
    assert item["spec"]["color"] == "red"


@pytest.mark.rows("RV-005", "RV-007")
@pytest.mark.parametrize(("start", "shown"), [("a\0", ["b"]), ("b", ["b"]), ("b\0", []), ("", [])])
def test_a_list_by_metadata_name_begins_at_its_continue_token(api: Client, start: str, shown: list[str]) -> None:
    widgets = serve(api)
    for name in ("a", "b", "c"):
        widgets.create(name)
    given = json.dumps({"v": "meta.k8s.io/v1", "rv": -1, "start": start}).encode()
    token = base64.urlsafe_b64encode(given).decode().rstrip("=")
    named = api.get(widgets.path(), fieldSelector="metadata.name=b", **{"continue": token})
    assert [one["metadata"]["name"] for one in named.expect(200 if start else 400).get("items", [])] == shown


@pytest.mark.rows("RV-005", "SEL-001")
def test_a_selector_of_one_namespace_narrows_a_list_of_all(api: Client) -> None:
    widgets = serve(api)
    for namespace, name in (("default", "a"), ("default", "b"), ("kube-public", "a")):
        widgets.create(name, namespace)
    whole = {"fieldSelector": "metadata.namespace=default"}
    first = api.get(widgets.path(namespace=None), limit=2, **whole).expect(200)
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    # The selector names the namespace default, so kube-public/a does not remain for a second page.
    # upstream: this is a list of that namespace
    assert first["metadata"]["continue"] == ""
    assert walk(api, widgets, 2, **whole) == ["a", "b"]


@pytest.mark.differs("the second page of a list narrowed by metadata.namespace repeats objects of the first")
@pytest.mark.rows("RV-005")
@pytest.mark.parametrize("match", ["", "Exact"])
def test_pages_of_a_narrowed_list_add_up(api: Client, match: str) -> None:
    widgets = serve(api)
    for namespace, name in (("default", "a"), ("default", "b"), ("kube-public", "a")):
        made = widgets.create(name, namespace)
    at = {"resourceVersion": made["metadata"]["resourceVersion"], "resourceVersionMatch": match} if match else {}
    for namespace, names in (("default", ["a", "b"]), ("kube-public", ["a"])):
        first = api.get(
            widgets.path(namespace=None), limit=1, fieldSelector=f"metadata.namespace={namespace}", **at
        ).expect(200)
        assert [item["metadata"]["name"] for item in first["items"]] == names[:1]
        token = first["metadata"]["continue"]
        assert bool(token) == (len(names) > 1)
        assert walk(api, widgets, 1, fieldSelector=f"metadata.namespace={namespace}") == names


@pytest.mark.rows("SEL-001", "SEL-005")
def test_lists_with_selectors(api: Client) -> None:
    widgets = serve(api, selectableFields=[{"jsonPath": ".spec.color"}])
    for name, color, labels in (("a", "red", {"x": "1"}), ("b", "blue", {"x": "2"}), ("c", "red", {})):
        body = widgets.make(name, color=color)
        body["metadata"]["labels"] = labels
        api.post(widgets.path(), body).expect(201)

    def chosen(**query: str) -> list[str]:
        return [item["metadata"]["name"] for item in api.get(widgets.path(), **query).expect(200)["items"]]

    assert chosen(labelSelector="x") == ["a", "b"]
    assert chosen(labelSelector="x notin (1)") == ["b", "c"]
    assert chosen(fieldSelector="spec.color=red") == ["a", "c"]
    assert chosen(fieldSelector="spec.color!=red,metadata.name=b") == ["b"]
    assert chosen(fieldSelector="spec.color=red", labelSelector="x=1") == ["a"]
    assert api.get(widgets.path(), fieldSelector="spec.size=1").expect(400)["message"] == (
        "field label not supported: spec.size"
    )


@pytest.mark.rows("RV-021")
def test_big_lists_are_compressed_when_asked(api: Client) -> None:
    widgets = serve(api)
    for number in range(60):
        widgets.create(f"w{number:02}", color="blue " * 600)
    plain = api.get(widgets.path())
    assert len(plain.raw) > 128 * 1024
    assert "content-encoding" not in plain.headers
    packed = api.get(widgets.path(), {"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.raw) < len(plain.raw) / 5
    assert json.loads(gzip.decompress(packed.raw)) == plain.json
    small = api.get(widgets.path("w00"), {"Accept-Encoding": "gzip"})
    assert "content-encoding" not in small.headers
    widgets.create("later")
    again = json.loads(gzip.decompress(api.get(widgets.path(), {"Accept-Encoding": "gzip"}).raw))
    assert again["items"][0]["metadata"]["name"] == "later"


@pytest.mark.rows("WRI-021")
def test_deletecollection_deletes_the_selected_objects(api: Client) -> None:
    widgets = serve(api)
    for number in range(12):
        body = widgets.make(f"w{number:02}")
        body["metadata"]["labels"] = {"even": str(number % 2 == 0).lower()}
        api.post(widgets.path(), body).expect(201)
    answer = api.delete(widgets.path(), labelSelector="even=true").expect(200)
    assert len(answer["items"]) == 6
    left = [item["metadata"]["labels"]["even"] for item in api.get(widgets.path()).expect(200)["items"]]
    assert left == ["false"] * 6
