"""An answer that is known by its text is kept as one that was judged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits
from apiext.catalog.converted import Converted, NeedsConversion
from apiext.catalog.forms import Form, Listed, ObjectForm, form_of_metadata
from apiext.catalog.served import ServedResource
from apiext.conversion import review, webhook
from apiext.conversion.review import Answered
from apiext.schema.budget import OverBudget
from tests.unit.catalog.answering import ROOTS, SPECS, TYPED, VALUES, judged, question, served
from tests.unit.catalog.samples import widget

pytestmark = pytest.mark.rows("VER-003", "VER-006", "VER-007", "VER-012")


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


def read(asked: list[NeedsConversion], raw: bytes) -> Answered:
    """Return what an answer to a review "u" brings."""
    return asyncio.run(webhook.converted_objects("v1", "u", asked, raw))


def review_of(asked: list[NeedsConversion], converted: list[Any], writer: str) -> Answered:
    """Return an answer that brings objects, as a webhook writes them."""
    objects = [*map(in_go, converted)] if writer == "in Go" else converted
    response = {"uid": "u", "convertedObjects": objects, "result": {"status": "Success"}}
    kind = {"kind": review.KIND, "apiVersion": f"{review.GROUP}/v1"}
    return read(asked, WRITERS[writer]({**kind, "response": response}))


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
