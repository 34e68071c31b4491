"""Requests at the edge of the API, each with the answer of a real server; and what needs more than one request."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.definitions import Resource, serve
from tests.support.http_client import DEFINITIONS, TABLE, Client

CASES = yaml.safe_load((Path(__file__).parent / "wire.yaml").read_text())


@pytest.fixture(scope="module")
def widgets(request: pytest.FixtureRequest) -> Resource:
    """A kind and one object of it, which no case changes."""
    found = serve(Client(request.getfixturevalue("server").url))
    found.create("a", color="red")
    return found


def filled(text: str, widgets: Resource) -> str:
    """Return a text with its places filled in."""
    places = {"objects": widgets.path(), "group": widgets.group, "crd": f"{DEFINITIONS}/widgets.{widgets.group}"}
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.rows(
    "ERR-01", "ERR-02", "ERR-03", "ERR-11", "ERR-14", "ERR-15", "WRI-007", "WRI-013", "WRI-020", "NEG-004"
)
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
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
    # upstream: a delete without a limit is one with a large one, which decides where a revision is read
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
def test_a_watch_until_before_now_ends_at_once(api: Client) -> None:
    widgets = serve(api)
    # upstream: a time before now is over as soon as what there is was sent
    assert api.get(widgets.path() + "?watch=true&timeoutSeconds=-1").status == 200


@pytest.mark.rows("PAR-001")
def test_a_watch_of_lists_ends_at_once(api: Client) -> None:
    widgets = serve(api)
    # upstream: such a stream ends at once
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    answer = api.request("GET", widgets.path() + "?watch=true&timeoutSeconds=5", None, accept)
    assert (answer.status, answer.raw) == (200, b"")
