"""A form fits what it was learned from with other values, and nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits
from apiext.catalog.forms import Form, Forms, Listed, ObjectForm, form_of_metadata

MEANING = b'{"labels":{"a":"one"},"name":"x1","of":["l1",2],"uid":"u1"}'
TEXT = b'{"name": "x1", "uid": "u1", "of": ["l1", 2], "labels": {"a": "one"}}'
TYPES = {"apiVersion": "e.com/v2", "kind": "A"}
REST = b', "b": "before", "spec": {"s": "t"}}'
OBJECT = b'{"apiVersion":"e.com/v2","b":"before","kind":"A","metadata":' + MEANING + b',"spec":{"s":"t"}}'
LATER = REST.replace(b'"b"', b'"n"')
LATER_OBJECT = b'{"apiVersion":"e.com/v2","kind":"A","metadata":' + MEANING + b',"n":"before","spec":{"s":"t"}}'
VALUES = {"a": "one", "name": "x1", "uid": "u1", "l": "l1"}


def other(text: bytes, **values: bytes) -> bytes:
    """Return a text with other values."""
    for name, value in values.items():
        text = text.replace(f'"{VALUES[name]}"'.encode(), b'"%b"' % value)
    return text


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        pytest.param(TEXT, MEANING, id="the same"),
        pytest.param(other(TEXT, name=b"y2", l=b", "), other(MEANING, name=b"y2", l=b", "), id="others"),
        pytest.param(other(TEXT, name="é".encode()), other(MEANING, name="é".encode()), id="not ASCII"),
        pytest.param(other(TEXT, name=b"longer"), b"", id="a longer one"),
        pytest.param(TEXT.replace(b"labels", b"labour"), b"", id="another member"),
        pytest.param(TEXT.replace(b"2", b"3"), b"", id="another number"),
        pytest.param(other(TEXT, name=b'"1'), b"", id="a quote"),
        pytest.param(other(TEXT, a=b'",1'), b"", id="a quote that ends one"),
        pytest.param(other(TEXT, name=b"\\n"), b"", id="an escape"),
        pytest.param(other(TEXT, name=b"\\1"), b"", id="a wrong escape"),
        pytest.param(TEXT[:-1], b"", id="a short text"),
        pytest.param(TEXT[:20], b"", id="a shorter one"),
    ],
)
def test_what_fits(text: bytes, meaning: bytes) -> None:
    form = Form(TEXT, MEANING, after=b", ")
    assert form.size == len(TEXT) + 2
    assert form.read(b"[[" + text + b', "spec":{}}', 2) == meaning
    assert form.read(b"[[" + text + b',"spec":{} }', 2) == b"", "of the text behind it so much is known"


@pytest.mark.parametrize(
    ("values", "is_text"),
    [
        pytest.param((b"before", b"t"), True, id="the same"),
        pytest.param((b"beyond", b"T"), True, id="others"),
        pytest.param((b"before", b"\t"), False, id="a control character"),
        pytest.param((b"before", b"\xff"), False, id="no UTF-8"),
        pytest.param((b"befor\xc3", b"\xa9"), False, id="no UTF-8 but together"),
    ],
)
@pytest.mark.parametrize("text", [REST, LATER])
def test_what_is_not_compared_with_anything_has_to_be_text(
    text: bytes, values: tuple[bytes, bytes], is_text: bool
) -> None:
    meaning = OBJECT if text == REST else LATER_OBJECT
    form = ObjectForm(TEXT + text, meaning, TYPES, meaning.index(MEANING), meaning.index(b'"uid"'))
    spoiled = TEXT + text.replace(b"before", values[0]).replace(b'"t"', b'"%b"' % values[1])
    expected = meaning.replace(b"before", values[0]).replace(b'"t"', b'"%b"' % values[1]) if is_text else b""
    assert form.meaning_of(spoiled, 0, b"[" + MEANING + b',"other":{}}', 1) == expected
    assert form.meaning_of(spoiled, 0, b"[" + other(MEANING, name=b"y2") + b',"other":{}}', 1) == b""


@pytest.mark.parametrize(("text", "alike"), [(REST, False), (LATER, True)])
def test_what_says_what_was_asked_about_is_text(text: bytes, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    meaning = OBJECT if text == REST else LATER_OBJECT
    begin = meaning.index(MEANING)
    form = ObjectForm(TEXT + text, meaning, TYPES, begin, meaning.index(b'"uid"'))
    monkeypatch.setattr("apiext.catalog.forms._is_text", lambda _: False)
    assert form.meaning_of(TEXT + text, 0, b"[" + meaning[begin:], 1) == (meaning if alike else b"")


def test_the_meaning_is_what_was_asked_about() -> None:
    form = Form(TEXT, MEANING)
    assert form.meaning_of(b"[" + TEXT, 1, b"[[" + MEANING + b"]]", 2) == MEANING
    assert form.meaning_of(b"[" + TEXT, 1, b"[[" + other(MEANING, name=b"y2") + b"]]", 2) == b""
    assert form.meaning_of(b"[" + TEXT[:-1], 1, b"[[" + MEANING + b"]]", 2) == b""


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        pytest.param(other(TEXT, name=b"x2"), MEANING, id="another value"),
        pytest.param(TEXT.replace(b"labels", b"labour"), MEANING, id="another member"),
        pytest.param(TEXT.replace(b'"name"', b'"name": "x1", "name"'), MEANING, id="twice"),
        pytest.param(TEXT[:-1], MEANING, id="no JSON"),
        pytest.param(b'{"name": "x1"}', b'{"name":"x1"}', id="few values"),
        pytest.param(b'{"a,": ",b,"}', b'{"a,":",b,"}', id="a name that looks like one"),
    ],
)
def test_what_is_not_learned(text: bytes, meaning: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(this text|unexpected|trailing)"):
        Form(text, meaning)


def test_an_escape_is_part_of_the_form() -> None:
    form = Form(TEXT.replace(b'"u1"', b'"\\u0075\\u0031"'), MEANING)
    assert form.read(other(TEXT, name=b"y2").replace(b'"u1"', b'"\\u0075\\u0031"'), 0) == other(MEANING, name=b"y2")
    assert form.read(TEXT.replace(b'"u1"', b'"\\u0076\\u0031"'), 0) == b""


_texts = st.text(st.sampled_from('ab,:[]{} "\\é\t\x7f0'), max_size=4)
_json = st.recursive(
    _texts | st.integers(-2, 12) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_texts, _json, min_size=1, max_size=4), st.data())
def test_what_is_read_is_what_it_means(document: dict[str, Any], data: st.DataObject) -> None:
    text = orjson.dumps(document)
    try:
        form = Form(text, orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
    except ValueError:
        return
    places = data.draw(st.lists(st.integers(0, len(text) - 1), max_size=4))
    spoiled = bytearray(text)
    for place in places:
        spoiled[place] = data.draw(st.sampled_from(b'ab,:[]{}"\\ \t\xc30'))
    read = form.read(bytes(spoiled), 0)
    try:
        orjson.loads(read)
    except orjson.JSONDecodeError:
        return  # nobody asks about that
    assert read == orjson.dumps(orjson.loads(bytes(spoiled)), option=orjson.OPT_SORT_KEYS)


def test_the_form_of_an_object() -> None:
    begin, place = OBJECT.index(MEANING), OBJECT.index(b'"uid"')
    form = ObjectForm(TEXT + REST, OBJECT, TYPES, begin, place)
    assert form.place == place
    read = form.read(other(TEXT, name=b"y2") + REST.replace(b'"t"', b'"u"'), 0)
    assert read == other(OBJECT, name=b"y2").replace(b'"t"', b'"u"')


@pytest.mark.parametrize("again", [b', "kind": "A"}', b', "apiVersion": "e.com/v2"}'])
def test_an_object_that_tells_its_type_again_has_no_form(again: bytes) -> None:
    with pytest.raises(ValueError, match="not understood"):
        ObjectForm(TEXT + REST[:-1] + again, OBJECT, TYPES, OBJECT.index(MEANING), OBJECT.index(b'"uid"'))


def learned(forms: Forms[Form], length: int, opening: bytes = b'{"kind":"A","metadata":', begins: int = 2) -> bool:
    """Learn from the first of two objects; return whether anything was learned for a length."""
    text = opening + TEXT + b', "spec":{}}'
    listed = Listed(text + b", " + text, opening, [0, len(text) + 2][:begins], 2)
    forms.learn(length, listed, 0, partial(form_of_metadata, MEANING))
    return forms.of(opening)(length) is not None


def test_forms_are_learned_while_that_pays() -> None:
    forms = Forms[Form]()
    tries = limits.FORM_CREDIT // limits.FORM_PRICE
    assert [learned(forms, length) for length in range(tries + 1)] == [True] * tries + [False]
    forms.paid(limits.FORM_PRICE)
    assert learned(forms, tries)
    assert not learned(forms, tries + 1)


def test_few_forms_are_kept_and_of_one_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORMS_KEPT", 2)
    forms = Forms[Form]()
    assert learned(forms, 1, b'{"kind":"B","metadata":')
    assert [learned(forms, length) for length in (1, 2, 3)] == [True] * 3
    known = forms.of(b'{"kind":"A","metadata":')
    assert [known(length) is not None for length in (1, 2, 3)] == [False, True, True]
    assert forms.of(b'{"kind":"B","metadata":')(1) is None


def test_few_versions_know_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that learned last do: what is forgotten is learned again when it pays."""
    monkeypatch.setattr(limits, "FORMS_AT_ALL", 2)
    first, second, third, fourth = some = [Forms[Form]() for _ in range(4)]

    def knowing() -> list[bool]:
        return [forms.of(b'{"kind":"A","metadata":')(1) is not None for forms in some]

    assert (learned(first, 1), learned(second, 1), learned(first, 2), learned(third, 1)) == (True,) * 4
    assert knowing() == [True, False, True, False]
    assert learned(second, 1)
    assert knowing() == [False, True, True, False]
    assert learned(fourth, 1)
    assert knowing() == [False, True, False, True]


def test_forms_of_another_beginning_are_forgotten() -> None:
    forms = Forms[Form]()
    assert learned(forms, 1, b'{"kind":"B","metadata":')
    assert learned(forms, 2)
    assert forms.of(b'{"kind":"A","metadata":')(1) is None


def test_where_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not learned(Forms(), 1, b'{"kind":')
    assert not learned(Forms(), 1, begins=1)
    with pytest.raises(ValueError, match="nothing follows"):
        form_of_metadata(MEANING, TEXT + b"}")
    monkeypatch.setattr(limits, "FORM_BYTES", len(TEXT) - 1)
    assert not learned(Forms(), 1)
