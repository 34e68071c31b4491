"""Conversion requests for widgets of two versions, and possible responses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from apiext.catalog.converted import Converted, NeedsConversion
from apiext.catalog.served import ServedResource
from apiext.conversion import review
from apiext.conversion.review import ConversionError, ConvertedObjects
from tests.unit.catalog.samples import CLOSED, resource, version

HOOK = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}}
UID = "8c9f7a64-4f0e-4d3a-9a55-1a2b3c4d5e6f"
TYPED = {
    "type": "object",
    "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
        "a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "host": {"type": "string"},
        "mode": {"type": "string"},
        "port": {"type": "string"},
        "spec": {
            "type": "object",
            "properties": {
                "color": {"type": "string", "default": "red"},
                "size": {"type": "number"},
                "ports": {"type": "array", "items": {"type": "object", "properties": {"uid": {"type": "string"}}}},
            },
        },
    },
}

FREE = {"x-kubernetes-preserve-unknown-fields": True}
ROOTED = {
    **CLOSED,
    "properties": {**CLOSED["properties"], **dict.fromkeys(("a", "hostPort", "labels", "zone"), FREE)},
}

SCALARS = st.sampled_from(["", "é", '"uid":"x"}', UID, 1, 2**63, True, None, 0.5, 1e21, -0.0])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["uid", "color", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "color": st.sampled_from(["blue", "", None, UID]),
        "size": st.integers(0, 3) | st.floats(0, 2),
        "ports": st.lists(st.fixed_dictionaries({}, optional={"uid": st.just(UID), "x": VALUES}), max_size=2),
        "unknown": VALUES,
    },
)
ROOTS = st.fixed_dictionaries(
    {},
    optional={
        "hostPort": st.sampled_from(["h:1", "", '"']),
        "a": st.just({"a": 1, "metadata": {"uid": UID}, "z": {"metadata": {"uid": UID}}}),
        "kind": st.just("Gadget"),
        "labels": st.just({"b": "c", "metadata": "d"}),
        "zone": st.just("z"),
    },
)


def served(written: str, schema: dict[str, Any]) -> ServedResource:
    """Return a resource of two versions, prepared for requests."""
    first, second = version("v1", ROOTED), version("v2", schema)
    made = resource(*((first, second) if written == "v1" else (second, first)), conversion=HOOK)
    for one in made.versions.values():
        one.work.prepare()
    return made


def request(of: ServedResource, raw: bytes) -> NeedsConversion:
    """Return the conversion that v2 needs for stored bytes."""
    with pytest.raises(NeedsConversion) as needed:
        of.versions["v2"].codec.view(raw, 7)
    return needed.value


def kept(need: NeedsConversion, answer: Any) -> Converted | str | None:
    """Return the object that the slow path caches for a conversion, or the error's text."""
    try:
        return need.keep(*review.accepted(need, ConvertedObjects(b"", []), answer, 0))
    except (ConversionError, ValueError, TypeError) as error:
        return str(error)
