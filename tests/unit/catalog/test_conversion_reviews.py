"""Objects cut from the text of a review are cached with the same bytes as decoded objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.converted import Converted, NeedsConversion
from apiext.conversion import review, webhook
from apiext.conversion.review import ConvertedObjects
from tests.unit.catalog.conversions import ROOTS, SPECS, TYPED, VALUES, kept, request, served
from tests.unit.catalog.samples import widget

pytestmark = pytest.mark.rows("VER-003", "VER-006", "VER-007", "VER-012")


def in_go(document: Any) -> Any:
    """Return a document with metadata in the order of Go's type, that is, names first."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return document
    first = {name: metadata[name] for name in ("name", "namespace", "uid", "generation") if name in metadata}
    return {**document, "metadata": {**first, **metadata}}


WRITERS: dict[str, Callable[[Any], bytes]] = {
    "sorted": lambda answer: orjson.dumps(answer, option=orjson.OPT_SORT_KEYS),
    "as it came": orjson.dumps,
    "in Python": lambda answer: json.dumps(answer).encode(),
    "in Go": orjson.dumps,
}


def read(asked: list[NeedsConversion], raw: bytes) -> ConvertedObjects:
    """Return the objects of the response to the review with the uid "u"."""
    return asyncio.run(webhook.converted_objects("v1", "u", asked, raw))


def review_of(asked: list[NeedsConversion], converted: list[Any], writer: str) -> ConvertedObjects:
    """Return the objects of a response, as ``writer`` formats it."""
    objects = [*map(in_go, converted)] if writer == "in Go" else converted
    response = {"uid": "u", "convertedObjects": objects, "result": {"status": "Success"}}
    kind = {"kind": review.KIND, "apiVersion": f"{review.GROUP}/v1"}
    return read(asked, WRITERS[writer]({**kind, "response": response}))


def stored(number: int, spec: Any = None, roots: Any = None, **metadata: Any) -> bytes:
    """Return a stored widget with many common fields, and fields beside its spec."""
    managed = {
        "manager": "m",
        "operation": "Update",
        "time": f"2026-11-23T05:41:{number:02}Z",
        "fieldsV1": {"f:spec": {}},
    }
    metadata = {"name": f"w{number:03}", "creationTimestamp": managed["time"], "managedFields": [managed], **metadata}
    uid = f"8c9f7a64-4f0e-4d3a-9a55-{number:012}"
    document = widget(uid, metadata=metadata, spec=spec or {"color": "blue"}, **(roots or {}))
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


_changes = st.sampled_from(
    (
        {}, {}, {}, {"generation": 2}, {"labels": {"app": "y"}}, {"labels": {"app": "x", "b": "c"}}, {"name": "w999"},
        {"uid": "8c9f7a64-4f0e-4d3a-9a55-000000000099"}, {"zone": "z"}, {"labels": None}, {"annotations": {"a": "b"}},
        {"managedFields": []},
    )
)  # fmt: skip
_parts = st.fixed_dictionaries(
    {},
    optional={
        "spec": SPECS | VALUES,
        "status": VALUES,
        "kind": st.just("Gadget"),
        "apiVersion": st.just("example.com/v1"),
        "data": st.just({"k": "v"}),
        "host": st.sampled_from(["h", 'a "b" \\ c', "é", 1]),
        "port": st.sampled_from(["1", ',"metadata":{', None]),
        "metadata": VALUES,
    },
)
_rows = st.tuples(_changes, _changes, ROOTS, _parts)


@given(st.sampled_from(sorted(WRITERS)), st.lists(_rows, min_size=2, max_size=5))
def test_the_fast_path_caches_the_bytes_of_the_slow_path(writer: str, rows: list[tuple[Any, Any, Any, Any]]) -> None:
    of, other = served("v1", TYPED), served("v1", TYPED)
    raws = [stored(0, labels={"app": "x"}), stored(1, labels={"app": "x"})]
    raws += [
        stored(number, roots=roots, **{"labels": {"app": "x"}, **change})
        for number, (change, _, roots, _) in enumerate(rows, 2)
    ]

    def convert(number: int, answer: Any) -> Any:
        if number < 2 or number == len(raws) - 1:
            return answer
        _, change, roots, parts = rows[number - 2]
        kept = {name: value for name, value in answer.items() if name == "kind" or name not in roots}
        return {**kept, "metadata": {**kept["metadata"], **change}, **parts}

    for raw in raws:
        of.versions["v1"].codec.view(raw, 7)  # finds the place of the resourceVersion
    asked = [request(of, raw) for raw in raws]
    converted = [
        convert(number, {**orjson.loads(need.text), "apiVersion": "example.com/v2"})
        for number, need in enumerate(asked)
    ]
    given = review_of(asked, converted, writer)
    taken = [need.keep_plain(given[index]) for index, need in enumerate(asked)]
    assert taken[0] is not None
    for index, (raw, one) in enumerate(zip(raws, taken, strict=True)):
        assert given[index] == json.loads(json.dumps(converted[index]))
        if one is not None:
            full = kept(request(other, raw), given[index])
            assert isinstance(full, Converted), full
            assert (one.at(12), one.size) == (full.at(12), full.size)
            assert of.versions["v2"].codec.view(raw, 9) == other.versions["v2"].codec.view(raw, 9)
