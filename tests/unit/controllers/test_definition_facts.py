"""What controllers know of a definition: the same whether all of it was decoded or only what is not its spec."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiext import limits
from apiext.controllers.definitions import DEFINITIONS, Definitions, Facts, read
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from apiext.storage.store import Entry

NAME = "widgets.example.com"


def definition(properties: int, **metadata: Any) -> dict[str, Any]:
    """Return a definition in the stored form whose schema has so many properties."""
    schema = {"type": "object", "properties": {f"p{number:04}": {"type": "string"} for number in range(properties)}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "uid": "u1", "generation": 1, **metadata},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}, "served": True, "storage": True}],
        },
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def entry(document: dict[str, Any], revision: int) -> Entry:
    """Return a definition as the store has it."""
    return Entry("", NAME, revision, orjson.dumps(document, option=orjson.OPT_SORT_KEYS) + b"\n")


def known(facts: Facts | None) -> tuple[Any, ...]:
    """Return what must not depend on how the facts were found."""
    assert facts is not None
    return (facts.name, facts.revision, facts.outline, facts.finalizers, facts.digest, facts.size, facts.suspect)


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "metadata": {"metadata": {"name": NAME, "uid": "u1", "generation": 2, "labels": {"a": "b"}, "finalizers": ["f"]}},
    "another object": {"metadata": {"name": NAME, "uid": "u2", "generation": 1}},
    "status": {"status": {"conditions": [], "acceptedNames": {"plural": "widgets", "kind": "Other"}}},
    "deleting": {"metadata": {"name": NAME, "uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    "spec": {"spec": {**definition(2_000)["spec"], "scope": "Cluster"}},
    "a small spec": {"spec": definition(1)["spec"]},
    "the old spec elsewhere": {"spec": definition(1)["spec"], "status": {"spec": definition(2_000)["spec"]}},
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("properties", [1, 2_000])
async def test_facts_after_a_change(name: str, properties: int) -> None:
    before = definition(properties)
    first, second = entry(before, 5), entry({**before, **CHANGES[name]}, 6)
    assert (len(first.raw) > limits.SPEC_SEARCHED) == (properties > 1)
    progress = Progress(lambda revision, times: None)
    collection = Collection(DEFINITIONS, False, "/registry/definitions/", None, progress, Pump())
    collection.load([first], {}, 5)
    definitions = Definitions(collection)
    assert known(definitions.get(NAME)) == known(read(first))
    collection.apply(NAME, 6, second.raw)
    progress.advance(6)
    assert known(definitions.get(NAME)) == known(read(second))
