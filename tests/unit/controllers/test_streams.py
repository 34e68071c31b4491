"""The versions whose watches an edit of a definition ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from apiext.controllers.definitions import streams
from apiext.crd.encoding import to_storage

pytestmark = pytest.mark.rows("SRV-015")

Versions = dict[str, dict[str, Any]]


def schema(**properties: Any) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "properties": properties}}


def definition(*, stored: tuple[str, ...] = ("v1",)) -> dict[str, Any]:
    names = {"plural": "widgets", "kind": "Widget"}
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": schema(a={"type": "string"})},
        {"name": "v2", "served": True, "storage": False, "schema": schema(a={"type": "string"})},
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "widgets.example.com", "uid": "u"},
        "spec": {"group": "example.com", "names": names, "versions": versions, "conversion": {"strategy": "None"}},
        "status": {"acceptedNames": names, "storedVersions": list(stored)},
    }


def versions_with_ended_watches(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the versions whose watches end, for definitions in their stored form."""
    was, now = (streams(orjson.dumps(to_storage(document))) for document in (before, after))
    return {name for name in was if was[name] != now.get(name)}


BOTH = {"v1", "v2"}
DESCRIBED = {"description": {"type": "string"}}
EDITS: dict[str, tuple[Callable[[Any, Versions], object], set[str]]] = {
    "a description": (
        lambda _, it: it["v1"]["schema"]["openAPIV3Schema"].update(description="x"),
        set(),
    ),
    "a property called description": (
        lambda _, it: it["v2"]["schema"]["openAPIV3Schema"]["properties"].update(DESCRIBED),
        {"v2"},
    ),
    "the schema of a non-storage version": (lambda _, it: it["v2"].update(schema=schema()), {"v2"}),
    "the schema of the storage version": (lambda _, it: it["v1"].update(schema=schema()), BOTH),
    "a column": (lambda _, it: it["v2"].update(additionalPrinterColumns=[{"name": "A"}]), {"v2"}),
    "a selectable field": (lambda _, it: it["v1"].update(selectableFields=[{"jsonPath": ".a"}]), {"v1"}),
    "a subresource": (lambda _, it: it["v1"].update(subresources={"status": {}}), set()),
    "a deprecation": (lambda _, it: it["v2"].update(deprecated=True), set()),
    "an added version": (lambda them, it: them["spec"]["versions"].append({**it["v2"], "name": "v3"}), BOTH),
    "a removed version": (lambda them, _: them["spec"]["versions"].pop(), BOTH),
    "versions in another order": (lambda them, _: them["spec"]["versions"].reverse(), set()),
    "the strategy": (lambda them, _: them["spec"].update(conversion={"strategy": "Webhook"}), BOTH),
    "requested names": (lambda them, _: them["spec"]["names"].update(shortNames=["w"]), set()),
    "accepted names": (lambda them, _: them["status"].update(acceptedNames={"kind": "Other"}), BOTH),
    "a recreated definition": (lambda them, _: them["metadata"].update(uid="w"), BOTH),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edit_ends_watches_of_changed_versions(edit: str) -> None:
    change, expected = EDITS[edit]
    before, after = definition(), definition()
    after["spec"]["names"] = dict(after["spec"]["names"])
    change(after, {version["name"]: version for version in after["spec"]["versions"]})
    assert versions_with_ended_watches(before, after) == expected


def test_moved_storage_version_ends_watches_of_all_versions() -> None:
    before, after = definition(), definition(stored=("v1", "v2"))
    for version in after["spec"]["versions"]:
        version["storage"] = version["name"] == "v2"
    assert versions_with_ended_watches(before, after) == {"v1", "v2"}


def test_stream_identities_are_equal_in_v1_and_stored_form() -> None:
    document = definition()
    assert streams(orjson.dumps(document)) == streams(orjson.dumps(to_storage(document)))
