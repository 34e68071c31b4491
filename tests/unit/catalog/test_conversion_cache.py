"""The fast path of cached conversions returns the same bytes as the slow path.

The slow path is validation, pruning and encoding.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any
from weakref import ref

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.converted import Conversions, Converted, NeedsConversion
from apiext.documents.document import clone
from apiext.storage.store import Entry
from tests.unit.catalog.conversions import ROOTS, SPECS, TYPED, UID, VALUES, kept, request, served
from tests.unit.catalog.samples import CLOSED, OPEN, widget

pytestmark = pytest.mark.rows("VER-003", "VER-006", "VER-007", "VER-012")
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from(["a", "uid"]), st.sampled_from(["", "b", UID]), max_size=2),
        "annotations": st.dictionaries(st.just("a"), st.sampled_from(['"uid":"x"}', "\\"]), max_size=1),
        "ownerReferences": st.just([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": UID}]),
        "uid": st.sampled_from([UID, 'a"b', "a\\", "é", "", None]),
        "resourceVersion": st.just("3"),
        "zone": st.just("z"),
    },
)
_rest = st.fixed_dictionaries(
    {},
    optional={
        "spec": SPECS | VALUES,
        "status": VALUES,
        "data": st.dictionaries(st.just("k"), st.sampled_from(["v", 1, None]), max_size=1),
        "host": st.sampled_from(["h", 'a "b" \\ c', "é", None]),
        "port": st.sampled_from(["1", ',"metadata":{', None]),
        "a": st.fixed_dictionaries({"b": st.just("c"), "metadata": st.just({"name": "w001"})}),
    },
)
_heads = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["Gadget", "", None]),
        "apiVersion": st.sampled_from(["example.com/v1", None]),
        "metadata": _metadata | VALUES,
    },
)
_tweaks = st.sampled_from([{}, {"generation": 2}, {"labels": {"a": "c"}}, {"zone": "z"}, {"name": None}, {"uid": "u"}])


@given(st.sampled_from(["v1", "v2"]), st.sampled_from([TYPED, OPEN, CLOSED]), _metadata, SPECS, _rest, ROOTS)
def test_fast_path_equals_slow_path_for_any_fields(
    written: str,
    schema: dict[str, Any],
    metadata: dict[str, Any],
    spec: dict[str, Any],
    rest: dict[str, Any],
    roots: dict[str, Any],
) -> None:
    def convert(asked: dict[str, Any]) -> dict[str, Any]:
        return {**{name: value for name, value in asked.items() if name == "kind" or name not in roots}, **rest}

    compare(written, schema, {**widget(metadata=metadata, spec=spec), **roots}, convert)


@given(_metadata, _heads, _tweaks, st.booleans())
def test_fast_path_equals_slow_path_for_any_metadata(
    metadata: dict[str, Any], head: dict[str, Any], tweak: dict[str, Any], whole: bool
) -> None:
    def convert(asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, **head} if whole else {**asked, "metadata": {**asked["metadata"], **tweak}}

    compare("v1", TYPED, widget(metadata=metadata), convert)


def compare(written: str, schema: dict[str, Any], stored: dict[str, Any], convert: Callable[[Any], Any]) -> None:
    """Check that the fast and the slow path cache the same bytes for a webhook's response."""
    raw = orjson.dumps(stored, option=orjson.OPT_SORT_KEYS)
    quick, careful = served(written, schema), served(written, schema)
    quick_v2, careful_v2 = quick.versions["v2"], careful.versions["v2"]
    asked, other = request(quick, raw), request(careful, raw)
    assert (asked.text, asked.api_version) == (other.text, other.api_version)
    answer = convert({**orjson.loads(asked.text), "apiVersion": "example.com/v2"})
    before = clone(answer)
    taken = asked.keep_plain(answer)
    if taken is None:
        assert answer == before
        assert request(quick, raw).text == asked.text, "nothing is kept of it"
        return
    full = kept(other, before)
    assert isinstance(full, Converted), full
    for revision in (7, 123_456):
        assert taken.at(revision) == full.at(revision)
        assert quick_v2.codec.view(raw, revision) == careful_v2.codec.view(raw, revision)
    assert taken.size == full.size
    new = {**widget(spec={}), "apiVersion": "example.com/v2"}
    if written == "v2":  # both have checked for missing defaults
        stored = quick_v2.codec.encode(new)
        assert stored == careful_v2.codec.encode(new)
        assert quick_v2.codec.view(stored, 8) == careful_v2.codec.view(stored, 8)


def test_fast_path_accepts_plain_conversions() -> None:
    of = served("v1", TYPED)
    need = request(of, orjson.dumps(widget(spec={"color": "blue"}), option=orjson.OPT_SORT_KEYS))
    answer = {**orjson.loads(need.text), "apiVersion": "example.com/v2", "spec": {"size": 3, "ports": [{"uid": "u"}]}}
    taken = need.keep_plain(clone(answer))
    assert taken is not None
    shown = orjson.loads(taken.at(12))
    assert shown["metadata"].pop("resourceVersion") == "12"
    assert shown == answer
    assert taken.at(12) == of.versions["v2"].codec.view(
        orjson.dumps(widget(spec={"color": "blue"}), option=orjson.OPT_SORT_KEYS), 12
    )


def test_fast_path_does_not_skip_later_defaults() -> None:
    of = served("v2", TYPED)
    raw = orjson.dumps(widget(spec={}), option=orjson.OPT_SORT_KEYS)
    need = request(of, raw)
    assert need.keep_plain({**orjson.loads(need.text), "apiVersion": "example.com/v2", "spec": {"size": 1}}) is not None
    stored = of.versions["v2"].codec.encode({**widget(spec={"size": 2}), "apiVersion": "example.com/v2"})
    assert orjson.loads(of.versions["v2"].codec.view(stored, 8))["spec"] == {"size": 2, "color": "red"}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Gadget"},
        {"apiVersion": "example.com/v1"},
        {"metadata": {**widget()["metadata"], "generation": 2}},
        {"metadata": {**widget()["metadata"], "zone": "z"}},
        {"spec": {"unknown": 1}},
        {"spec": {"color": None}},
        {"spec": {"size": 1.0}},
        {"data": {"k": "v", "l": None}},
        {"unknown": "v"},
    ],
)
def test_fast_path_falls_back_for_unusual_responses(change: dict[str, Any]) -> None:
    of = served("v1", TYPED)
    first, need = (
        request(of, orjson.dumps(widget(spec={"replicas": n}), option=orjson.OPT_SORT_KEYS)) for n in range(2)
    )
    plain = {**orjson.loads(need.text), "apiVersion": "example.com/v2", "spec": {}}
    assert need.keep_plain({**plain, **change}) is None
    assert first.keep_plain(clone(plain)) is not None
    assert need.keep_plain({**plain, **change}) is None, "however much is known of the version"


def cached_entry(view: bytes) -> Entry:
    """Return an entry with a cached view."""
    entry = Entry("n", "x", 1, b"{}")
    entry.cache_view(lambda raw, revision: b"", view)
    return entry


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda raw: Converted.cut(raw, 20), id="cut"),
        pytest.param(Converted.cut, id="whole"),
        pytest.param(cached_entry, id="a view"),
    ],
)
def test_cached_conversions_occupy_no_spare_memory(keep: Callable[[bytes], object]) -> None:
    document = {f"key{number:03}": f"value {number}" for number in range(80)}
    size = len(orjson.dumps(document))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [keep(orjson.dumps(document)) for _ in range(50)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50 * (size + 1_000), "what orjson writes holds a multiple of it"
    assert len(kept) == 50


def test_lookup_returns_the_same_requests() -> None:
    of = served("v1", TYPED)
    raws = [orjson.dumps(widget(spec={"replicas": n}), option=orjson.OPT_SORT_KEYS) for n in range(4)]
    of.versions["v1"].codec.view(raws[2], 7)  # from now on known to be equal to its stored form, unlike raws[1]
    first = request(of, raws[0])
    unseen = [b'{"apiVersion":"example.com/v2","kind":"Widget"}', b'{"kind":"Widget"}', b"[]", b""]
    second, third, *none = first.lookup([raws[1], raws[2], *unseen])
    assert none == [None] * len(unseen)
    for need, raw in ((second, raws[1]), (third, raws[2])):
        assert isinstance(need, NeedsConversion)
        alone = request(of, raw)
        assert (need.text, need.key, need.batch_key) == (alone.text, alone.key, first.batch_key)
    assert isinstance(second, NeedsConversion)
    kept = second.keep({**orjson.loads(second.text), "apiVersion": "example.com/v2"}, b"")
    assert first.lookup([raws[1]]) == [kept]
    again, known = first.lookup([raws[3], raws[1]])
    assert known is kept
    assert isinstance(again, NeedsConversion)


class Held(Converted):
    """A conversion that supports weak references, so that a test can check when it is freed."""

    __slots__ = ("__weakref__",)


def test_conversion_cache_is_freed_with_its_definition() -> None:
    conversions, made = Conversions(), Held(b"", b'{"spec":{}}')
    held = ref(conversions.keep(b"{}", made))
    assert conversions.find(b"{}") is made
    del made
    assert held() is not None
    del conversions
    assert held() is None
