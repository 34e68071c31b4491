"""Controllers read the same facts of a definition with and without decoding its spec."""

from __future__ import annotations

from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apiext.controllers import definitions as definitions_module
from apiext.controllers import definitions as facts_of
from apiext.controllers.definitions import DEFINITIONS, Definitions, Facts, read
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from apiext.storage.store import Entry

NAME = "widgets.example.com"


def definition(properties: int, **metadata: Any) -> dict[str, Any]:
    """Return a definition in the stored form whose schema has ``properties`` properties."""
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
    """Return the store's entry of a definition."""
    return Entry("", NAME, revision, orjson.dumps(document, option=orjson.OPT_SORT_KEYS) + b"\n")


def comparable_facts(facts: Facts | None) -> tuple[Any, ...]:
    """Return the facts that must not depend on the way they were read."""
    assert facts is not None
    return (facts.name, facts.revision, facts.outline, facts.finalizers, facts.digest, facts.size, facts.suspect)


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "metadata": {"metadata": {"name": NAME, "uid": "u1", "generation": 2, "labels": {"a": "b"}, "finalizers": ["f"]}},
    "a recreated object": {"metadata": {"name": NAME, "uid": "u2", "generation": 1}},
    "status": {"status": {"conditions": [], "acceptedNames": {"plural": "widgets", "kind": "Other"}}},
    "deleting": {"metadata": {"name": NAME, "uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    "spec": {"spec": {**definition(2_000)["spec"], "scope": "Cluster"}},
    "a small spec": {"spec": definition(1)["spec"]},
    "the old spec in the status": {"spec": definition(1)["spec"], "status": {"spec": definition(2_000)["spec"]}},
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("properties", [1, 2_000])
async def test_cached_facts_equal_facts_read_anew_after_change(name: str, properties: int) -> None:
    before = definition(properties)
    first, second = entry(before, 5), entry({**before, **CHANGES[name]}, 6)
    assert (len(first.raw) > definitions_module.SPEC_SEARCHED) == (properties > 1)
    progress = Progress(lambda revision, times: None)
    collection = Collection(DEFINITIONS, False, "/registry/definitions/", None, progress, Pump())
    collection.load([first], {}, 5)
    definitions = Definitions(collection)
    assert comparable_facts(definitions.get(NAME)) == comparable_facts(read(first))
    collection.apply(NAME, 6, second.raw)
    progress.advance(6)
    assert comparable_facts(definitions.get(NAME)) == comparable_facts(read(second))


def test_fast_path_of_facts_is_right_for_unsorted_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions_module, "SPEC_SEARCHED", 1)
    document = definition(1)
    for names in (("group", "names", "scope", "versions"), ("scope", "names", "group", "versions")):
        spec = {name: document["spec"][name] for name in names}
        stored = Entry("", NAME, 3, orjson.dumps({**document, "spec": spec}))
        assert facts_of._read_large(stored) in (None, facts_of._read(stored, orjson.loads(stored.raw)))


NAMES = st.sampled_from(
    ("spec", "status", "versions", "validation", '},"status":{', ',"spec":{', ',"versions":[', "additionalItems", "zoo")
)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.dictionaries(NAMES, VALUES, max_size=3)
V1_SPEC = {
    "group": "example.com",
    "names": {"plural": "widgets", "kind": "Widget"},
    "preserveUnknownFields": False,
    "scope": "Namespaced",
}


@example(
    {}, {}, None, {"status": {}, ',"spec":{': {"status": []}}, {}, ["apiVersion", "kind", "metadata", "spec", "status"]
)
@example({}, {}, None, {"status": {}, "spec": {"spec": []}}, {}, ["apiVersion", "kind", "metadata", "spec", "status"])
@given(
    metadata=MEMBERS,
    before=MEMBERS,
    schema=VALUES,
    status=MEMBERS,
    top=st.sampled_from(({}, {"aside": {"spec": {}}}, {"spectre": {"status": {}}}, {"zoo": [{}]})),
    order=st.permutations(("apiVersion", "kind", "metadata", "spec", "status")),
)
def test_fast_path_of_facts_equals_decoding(
    metadata: dict[str, Any],
    before: dict[str, Any],
    schema: object,
    status: dict[str, Any],
    top: dict[str, Any],
    order: list[str],
) -> None:
    for hoisted, is_sorted in product((False, True), (False, True)):
        versions = {"versions": [{"name": "v1", "schema": schema}]}
        large = {"validation": schema, "version": "v1", **versions} if hoisted else versions
        document = {
            "apiVersion": "apiextensions.k8s.io/v1beta1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": NAME, "uid": "u1", "annotations": metadata},
            "spec": {**V1_SPEC, "conversion": before, **large} if is_sorted else {**large, **V1_SPEC},
            "status": {"acceptedNames": status},
        }
        if is_sorted:
            raw = orjson.dumps({**document, **top}, option=orjson.OPT_SORT_KEYS)
        else:
            raw = orjson.dumps({**{key: document[key] for key in order}, **top})
        stored = Entry("", NAME, 3, raw)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(definitions_module, "SPEC_SEARCHED", 1)
            quick = facts_of._read_large(stored)
            decoded = facts_of._read(stored, orjson.loads(raw))
            assert quick in (None, decoded)
            accepted = orjson.dumps(status, option=orjson.OPT_SORT_KEYS)  # misleading texts
            misleading = b'"spec":' in accepted or b']},"status":{' in accepted
            assert quick is not None or not is_sorted or top or metadata or before or misleading
