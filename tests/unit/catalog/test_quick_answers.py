"""An answer that is taken at a glance is kept as one that was judged, pruned and written."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any
from weakref import ref

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits
from apiext.catalog.converted import Conversions, Converted, NeedsConversion
from apiext.catalog.forms import Form, Listed, ObjectForm, form_of_metadata
from apiext.catalog.served import ServedResource
from apiext.conversion import review
from apiext.conversion.review import Answered, ConversionError
from apiext.documents.document import clone
from apiext.schema.budget import OverBudget
from apiext.storage.store import Entry
from tests.unit.catalog.samples import CLOSED, OPEN, resource, version, widget

pytestmark = pytest.mark.rows("VER-003", "VER-006", "VER-007", "VER-012")
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

_scalars = st.sampled_from(["", "é", '"uid":"x"}', UID, 1, 2**63, True, None, 0.5, 1e21, -0.0])
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["uid", "color", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "color": st.sampled_from(["blue", "", None, UID]),
        "size": st.integers(0, 3) | st.floats(0, 2),
        "ports": st.lists(st.fixed_dictionaries({}, optional={"uid": st.just(UID), "x": _values}), max_size=2),
        "unknown": _values,
    },
)
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
        "spec": _specs | _values,
        "status": _values,
        "data": st.dictionaries(st.just("k"), st.sampled_from(["v", 1, None]), max_size=1),
        "host": st.sampled_from(["h", 'a "b" \\ c', "é", None]),
        "port": st.sampled_from(["1", ',"metadata":{', None]),
        "a": st.fixed_dictionaries({"b": st.just("c"), "metadata": st.just({"name": "w001"})}),
    },
)
_roots = st.fixed_dictionaries(
    {},
    optional={
        "hostPort": st.sampled_from(["h:1", "", '"']),
        "a": st.just({"a": 1, "metadata": {"uid": UID}, "z": {"metadata": {"uid": UID}}}),
        "kind": st.just("Gadget"),
        "labels": st.just({"b": "c", "metadata": "d"}),
        "zone": st.just("z"),
    },
)
_heads = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["Gadget", "", None]),
        "apiVersion": st.sampled_from(["example.com/v1", None]),
        "metadata": _metadata | _values,
    },
)
_tweaks = st.sampled_from([{}, {"generation": 2}, {"labels": {"a": "c"}}, {"zone": "z"}, {"name": None}, {"uid": "u"}])


def served(written: str, schema: dict[str, Any]) -> ServedResource:
    """Return a resource whose versions differ, ready as a request finds it."""
    first, second = version("v1", ROOTED), version("v2", schema)
    made = resource(*((first, second) if written == "v1" else (second, first)), conversion=HOOK)
    for one in made.versions.values():
        one.prepare()
    return made


def question(of: ServedResource, raw: bytes) -> NeedsConversion:
    """Return what v2 asks about stored bytes."""
    with pytest.raises(NeedsConversion) as needed:
        of.versions["v2"].view(raw, 7)
    return needed.value


def judged(need: NeedsConversion, answer: Any) -> Converted | str | None:
    """Return what the careful way keeps of an answer, or what is wrong with it."""
    try:
        return need.keep(*review.accepted(need, Answered(b"", []), answer, 0))
    except (ConversionError, ValueError, TypeError) as error:
        return str(error)


@given(st.sampled_from(["v1", "v2"]), st.sampled_from([TYPED, OPEN, CLOSED]), _metadata, _specs, _rest, _roots)
def test_any_rest(
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
def test_any_type_and_metadata(
    metadata: dict[str, Any], head: dict[str, Any], tweak: dict[str, Any], whole: bool
) -> None:
    def convert(asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, **head} if whole else {**asked, "metadata": {**asked["metadata"], **tweak}}

    compare("v1", TYPED, widget(metadata=metadata), convert)


def compare(written: str, schema: dict[str, Any], stored: dict[str, Any], convert: Callable[[Any], Any]) -> None:
    """See what both ways make of an answer."""
    raw = orjson.dumps(stored, option=orjson.OPT_SORT_KEYS)
    quick, careful = served(written, schema), served(written, schema)
    quick_v2, careful_v2 = quick.versions["v2"], careful.versions["v2"]
    asked, other = question(quick, raw), question(careful, raw)
    assert (asked.text, asked.api_version) == (other.text, other.api_version)
    answer = convert({**orjson.loads(asked.text), "apiVersion": "example.com/v2"})
    before = clone(answer)
    taken = asked.take(answer)
    if taken is None:
        assert answer == before
        assert question(quick, raw).text == asked.text, "nothing is kept of it"
        return
    kept = judged(other, before)
    assert isinstance(kept, Converted), kept
    for revision in (7, 123_456):
        assert taken.at(revision) == kept.at(revision)
        assert quick_v2.view(raw, revision) == careful_v2.view(raw, revision)
    assert taken.size == kept.size
    new = {**widget(spec={}), "apiVersion": "example.com/v2"}
    if written == "v2":  # both have seen whether defaults were lacking
        stored = quick_v2.encode(new)
        assert stored == careful_v2.encode(new)
        assert quick_v2.view(stored, 8) == careful_v2.view(stored, 8)


def test_what_is_taken() -> None:
    of = served("v1", TYPED)
    need = question(of, orjson.dumps(widget(spec={"color": "blue"}), option=orjson.OPT_SORT_KEYS))
    answer = {**orjson.loads(need.text), "apiVersion": "example.com/v2", "spec": {"size": 3, "ports": [{"uid": "u"}]}}
    taken = need.take(clone(answer))
    assert taken is not None
    shown = orjson.loads(taken.at(12))
    assert shown["metadata"].pop("resourceVersion") == "12"
    assert shown == answer
    assert taken.at(12) == of.versions["v2"].view(
        orjson.dumps(widget(spec={"color": "blue"}), option=orjson.OPT_SORT_KEYS), 12
    )


def test_defaults_that_were_lacking_are_noticed() -> None:
    of = served("v2", TYPED)
    raw = orjson.dumps(widget(spec={}), option=orjson.OPT_SORT_KEYS)
    need = question(of, raw)
    assert need.take({**orjson.loads(need.text), "apiVersion": "example.com/v2", "spec": {"size": 1}}) is not None
    stored = of.versions["v2"].encode({**widget(spec={"size": 2}), "apiVersion": "example.com/v2"})
    assert orjson.loads(of.versions["v2"].view(stored, 8))["spec"] == {"size": 2, "color": "red"}


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
def test_what_is_judged(change: dict[str, Any]) -> None:
    of = served("v1", TYPED)
    first, need = (
        question(of, orjson.dumps(widget(spec={"replicas": n}), option=orjson.OPT_SORT_KEYS)) for n in range(2)
    )
    plain = {**orjson.loads(need.text), "apiVersion": "example.com/v2", "spec": {}}
    assert need.take({**plain, **change}) is None
    assert first.take(clone(plain)) is not None
    assert need.take({**plain, **change}) is None, "however much is known of the version"


def remembered(view: bytes) -> Entry:
    """Return an entry that remembers a view."""
    entry = Entry("n", "x", 1, b"{}")
    entry.remember(lambda raw, revision: b"", view)
    return entry


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda raw: Converted.cut(raw, 20), id="cut"),
        pytest.param(Converted.cut, id="whole"),
        pytest.param(remembered, id="a view"),
    ],
)
def test_what_is_kept_takes_its_own_length(keep: Callable[[bytes], object]) -> None:
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


def test_others_are_asked_about_alike() -> None:
    of = served("v1", TYPED)
    raws = [orjson.dumps(widget(spec={"replicas": n}), option=orjson.OPT_SORT_KEYS) for n in range(4)]
    of.versions["v1"].view(raws[2], 7)  # known to be as it is stored, unlike that before
    first = question(of, raws[0])
    unseen = [b'{"apiVersion":"example.com/v2","kind":"Widget"}', b'{"kind":"Widget"}', b"[]", b""]
    second, third, *none = first.others([raws[1], raws[2], *unseen])
    assert none == [None] * len(unseen)
    for need, raw in ((second, raws[1]), (third, raws[2])):
        assert isinstance(need, NeedsConversion)
        alone = question(of, raw)
        assert (need.text, need.key, need.asker) == (alone.text, alone.key, first.asker)
    assert isinstance(second, NeedsConversion)
    kept = second.keep({**orjson.loads(second.text), "apiVersion": "example.com/v2"}, b"")
    assert first.others([raws[1]]) == [kept]
    again, known = first.others([raws[3], raws[1]])
    assert known is kept
    assert isinstance(again, NeedsConversion)


def in_go(document: Any) -> Any:
    """Return a document with metadata in the order of Go's type: names come first."""
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


def review_of(asked: list[NeedsConversion], converted: list[Any], writer: str) -> Answered:
    """Return an answer that brings objects, as a webhook writes them."""
    objects = [*map(in_go, converted)] if writer == "in Go" else converted
    response = {"uid": "u", "convertedObjects": objects, "result": {"status": "Success"}}
    kind = {"kind": review.KIND, "apiVersion": f"{review.GROUP}/v1"}
    return review.converted_objects("v1", "u", asked, WRITERS[writer]({**kind, "response": response}))


def stored(number: int, spec: Any = None, roots: Any = None, **metadata: Any) -> bytes:
    """Return a stored widget that has much in common with others, and members beside its spec."""
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


def recognized(of: ServedResource, raws: list[bytes], convert: Callable[[int, Any], Any], writer: str) -> Any:
    """Return what is made of answers by their texts after the first was learned from, and what they held."""
    view = of.versions["v1"].view
    for raw in raws:
        view(raw, 7)  # so that it is known where the resourceVersion goes
    asked = [question(of, raw) for raw in raws]
    converted = [
        convert(number, {**orjson.loads(need.text), "apiVersion": "example.com/v2"})
        for number, need in enumerate(asked)
    ]
    given = review_of(asked, converted, writer)
    if given.listed is None or (taken := asked[0].take(given[0])) is None:
        return [None] * len(asked), given
    asked[0].learn(taken, given.listed, 0)
    return [None, *asked[1].recognize(asked[1:], given.listed, 1)], given


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "labels", [{}, {"app": "x"}, {"app": "x", "of": 'a "b" \\ c'}, {"%b": "é"}, {"app": "1"}], ids=str
)
def test_metadata_are_known_by_their_form(writer: str, labels: dict[str, str]) -> None:
    of, other = served("v1", TYPED), served("v1", TYPED)
    raws = [stored(number, **({"labels": labels} if labels else {})) for number in range(5)]
    made, given = recognized(of, raws, lambda number, answer: {**answer, "spec": {"size": number}}, writer)
    assert [one is None for one in made] == [True, False, False, False, True]
    for raw, one, answer in zip(raws, made, given, strict=True):
        kept = judged(question(other, raw), answer)
        assert isinstance(kept, Converted)
        assert one is None or (one.at(12), one.size) == (kept.at(12), kept.size)


def after_one(of: ServedResource, second: Any = None) -> tuple[list[NeedsConversion], Listed]:
    """Return questions and the texts of what was answered, after the first was learned from."""
    raws = [stored(number, second if number == 1 else None) for number in range(4)]
    asked = [question(of, raw) for raw in raws if of.versions["v1"].view(raw, 7)]
    given = review_of(asked, [{**orjson.loads(need.text), "apiVersion": "example.com/v2"} for need in asked], "sorted")
    assert given.listed is not None
    taken = asked[0].take(given[0])
    assert taken is not None
    asked[0].learn(taken, given.listed, 0)
    return asked, given.listed


def test_an_answer_of_another_kind_takes_nothing_of_what_was_learned() -> None:
    asked, listed = after_one(served("v1", TYPED))
    other = {**orjson.loads(asked[1].text), "apiVersion": "example.com/v2", "kind": "Gadget"}
    assert asked[1].take(other) is None
    assert [one is None for one in asked[1].recognize(asked[1:], listed, 1)] == [False, False, False]


@pytest.mark.parametrize("roots", [{}, {"hostPort": "h:1"}], ids=str)
def test_an_object_of_another_kind_is_judged(roots: dict[str, str]) -> None:
    of = served("v1", TYPED)
    asked, listed = after_one(of)
    gadget = stored(1, roots={"kind": "Gadget", **roots})
    of.versions["v1"].view(gadget, 7)
    need = question(of, gadget)
    answer = {**orjson.loads(asked[1].text), "apiVersion": "example.com/v2"}
    assert need.take(answer) is None
    assert need.recognize([need], listed, 1) == [None]


@pytest.mark.parametrize("again", [b'"kind":"Gadget"', b'"apiVersion":"example.com/v1"', b'"metadata":{}'])
def test_a_type_that_is_told_again_is_judged(again: bytes) -> None:
    asked, listed = after_one(served("v1", TYPED))
    texts = [listed.text(index) for index in range(3)]
    texts[1] = texts[1].replace(b'"spec":', again + b',"spec":')
    begins = [0, len(texts[0]) + 1, len(texts[0]) + len(texts[1]) + 2]
    found = asked[1].recognize(asked[1:], listed._replace(raw=b",".join(texts), begins=begins, gap=1), 1)
    assert [one is None for one in found] == [True, True, True]


def test_an_object_that_is_no_json_is_looked_into() -> None:
    asked, listed = after_one(served("v1", TYPED))
    begin, end = listed.begins[1:3]
    broken = listed.raw[begin:end].replace(b'"color":', b'"color"+')
    listed = listed._replace(raw=listed.raw[:begin] + broken + listed.raw[end:])
    assert [one is None for one in asked[1].recognize(asked[1:], listed, 1)] == [True, False, False]


def test_an_object_that_takes_too_many_defaults_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, listed = after_one(served("v2", TYPED), {"color": "green"})

    def default(*_: object) -> bool:
        raise OverBudget("too many")

    monkeypatch.setattr("apiext.schema.compile.CompiledSchema.default", default)
    assert [one is None for one in asked[1].recognize(asked[1:], listed, 1)] == [True, False, False]


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
        "spec": _specs | _values,
        "status": _values,
        "kind": st.just("Gadget"),
        "apiVersion": st.just("example.com/v1"),
        "data": st.just({"k": "v"}),
        "host": st.sampled_from(["h", 'a "b" \\ c', "é", 1]),
        "port": st.sampled_from(["1", ',"metadata":{', None]),
        "metadata": _values,
    },
)
_rows = st.tuples(_changes, _changes, _roots, _parts)


@given(st.sampled_from(sorted(WRITERS)), st.lists(_rows, min_size=2, max_size=5))
def test_what_is_recognized_is_what_would_be_judged(writer: str, rows: list[tuple[Any, Any, Any, Any]]) -> None:
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

    made, given = recognized(of, raws, convert, writer)
    assert made[1] is not None or given.listed is None
    for index, (raw, one) in enumerate(zip(raws, made, strict=True)):
        if one is not None:
            kept = judged(question(other, raw), given[index])
            assert isinstance(kept, Converted), kept
            assert (one.at(12), one.size) == (kept.at(12), kept.size)
            assert of.versions["v2"].view(raw, 9) == other.versions["v2"].view(raw, 9)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("roots", [{}, {"hostPort": "h:1"}], ids=str)
def test_whole_objects_are_known_by_their_form(
    writer: str, roots: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of, other = served("v2", TYPED), served("v2", TYPED)
    raws = [stored(number, {"color": "blue"}, roots) for number in range(5)]
    monkeypatch.setattr("apiext.catalog.answers.Answers._recognized", lambda *_: None)

    def convert(number: int, answer: Any) -> Any:
        if answer.pop("hostPort", ""):
            answer |= {"host": f"h{number}", "port": "1"}
        return {**answer, "mode": f"x{number}", "spec": {"color": "blue", "ports": [{"uid": "u"}], "size": 3}}

    made, given = recognized(of, raws, convert, writer)
    plain = not roots or writer != "sorted"  # then the host stands before the kind
    assert [one is not None for one in made] == [False, *[plain] * 4]
    for raw, one, answer in zip(raws, made, given, strict=True):
        kept = judged(question(other, raw), answer)
        assert isinstance(kept, Converted)
        assert one is None or (one.at(12), one.size) == (kept.at(12), kept.size)


@pytest.mark.parametrize("spec", [{}, {"spec": {"size": 7}}], ids=["a known form", "known metadata"])
def test_metadata_that_changed_are_looked_into(spec: dict[str, Any]) -> None:
    of = served("v1", TYPED)
    raws = [stored(number, labels={"app": "x"}) for number in range(4)]

    def convert(number: int, answer: Any) -> Any:
        return {**answer, "metadata": {**answer["metadata"], "labels": {"app": "y"}}, **spec} if number == 1 else answer

    made, _ = recognized(of, raws, convert, "in Python")
    assert [one is not None for one in made] == [False, False, True, True]


def test_forms_that_fit_pay_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORM_CREDIT", 3)
    monkeypatch.setattr(limits, "FORM_PRICE", 3)
    of, learned = served("v1", TYPED), [0, 0]

    class Counted(ObjectForm):
        def __init__(self, *args: Any) -> None:
            learned[0] += 1
            super().__init__(*args)

    def counted(*args: Any) -> Form:
        learned[1] += 1
        return form_of_metadata(*args)

    monkeypatch.setattr("apiext.catalog.answers.ObjectForm", Counted)
    monkeypatch.setattr("apiext.catalog.answers.form_of_metadata", counted)
    asked = [question(of, stored(number, {"color": "x" * (number // 4)})) for number in range(12)]
    given = review_of(asked, [{**orjson.loads(need.text), "apiVersion": "example.com/v2"} for need in asked], "sorted")
    assert given.listed is not None
    for start in range(4):  # nothing is known of the first, and the others have no credit until the form was of use
        of.versions["v1"].view(stored(start), 7)
    taken = asked[0].take(given[0])
    assert taken is not None
    asked[0].learn(taken, given.listed, 0)
    asked[0].learn(taken, given.listed, 0)
    assert learned == [1, 1], "there is no credit for more"
    for start, expected in ((1, 1), (4, 2), (8, 3)):
        known = asked[start].recognize(asked[start : start + 4], given.listed, start)
        assert (None not in known, learned[0]) == (True, expected)
    asked[0].learn(taken, given.listed, 0)
    assert learned[1] == 2, "those of which only the metadata were known pay for such forms"


@pytest.mark.parametrize(
    ("end", "known"), [("same", True), ("longer", False), ("s", False)], ids=["as long", "longer", "shorter"]
)
def test_where_the_last_object_ends_is_known_if_it_is_as_long_as_the_one_before(end: str, known: bool) -> None:
    of = served("v1", TYPED)
    raws = [stored(number, {"color": end if number == 3 else "blue"}) for number in range(4)]
    made, _ = recognized(of, raws, lambda _, answer: answer, "in Python")
    assert [one is not None for one in made] == [False, True, True, known]


@pytest.mark.parametrize("more", [b",0", b"}"])
def test_a_text_with_more_than_an_object_is_looked_into(more: bytes) -> None:
    asked, listed = after_one(served("v1", TYPED))
    begin = listed.begins[2]
    raw = listed.raw[: begin - 1] + more + listed.raw[begin - 1 :]
    begins = [*listed.begins[:2], *(place + len(more) for place in listed.begins[2:])]
    found = asked[1].recognize(asked[1:], listed._replace(raw=raw, begins=begins), 1)
    assert [one is None for one in found] == [True, False, False]


def test_what_an_object_says_twice_is_no_form_of_others() -> None:
    asked, _ = after_one(served("v1", TYPED))
    answers = [{**orjson.loads(need.text), "apiVersion": "example.com/v2"} for need in asked]
    given = review_of(asked, answers, "sorted")
    assert given.listed is not None
    texts = [
        given.listed.text(index)[:-1] + b',"kind":"%b"}' % kind for index, kind in enumerate((b"Widget", b"Gadget"))
    ]
    listed = given.listed._replace(raw=b",".join([*texts, b"{}"]), begins=[0, len(texts[0]) + 1, 2 * len(texts[0]) + 2])
    again = served("v1", TYPED)
    assert again.versions["v1"].view(stored(0), 7)
    first = question(again, stored(0))
    taken = first.take(orjson.loads(texts[0]))
    assert taken is not None
    first.learn(taken, listed, 0)
    assert again.versions["v1"].view(stored(1), 7)
    second = question(again, stored(1))
    assert second.recognize([second], listed, 1) == [None]
    assert isinstance(judged(second, orjson.loads(texts[1])), str)


@pytest.mark.parametrize("writer", ["in Python", "as it came"])
def test_members_of_the_root_may_stand_before_metadata_and_after(writer: str) -> None:
    of, other = served("v1", TYPED), served("v1", TYPED)
    raws = [stored(number, roots={"hostPort": f"h{number}:{number + 8}"}) for number in range(5)]

    def convert(number: int, answer: Any) -> Any:
        host, _, port = answer.pop("hostPort").partition(":")
        return {**answer, "host": host, "mode": "tcp", "port": port}

    made, given = recognized(of, raws, convert, writer)
    assert [one is None for one in made] == [True, False, False, False, False]
    for raw, one, answer in zip(raws, made, given, strict=True):
        kept = judged(question(other, raw), answer)
        assert isinstance(kept, Converted)
        assert one is None or (one.at(12), one.size) == (kept.at(12), kept.size)


class Held(Converted):
    """An answer of which one can tell whether anybody has it."""

    __slots__ = ("__weakref__",)


def test_answers_go_with_the_definition_they_are_for() -> None:
    conversions, made = Conversions(), Held(b"", b'{"spec":{}}')
    held = ref(conversions.keep(b"{}", made))
    assert conversions.find(b"{}") is made
    del made
    assert held() is not None
    del conversions
    assert held() is None
