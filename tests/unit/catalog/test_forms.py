"""A form of metadata fits what it was learned from with other values, and nothing else."""

from __future__ import annotations

import pytest

from apiext import limits
from apiext.catalog.forms import Form, Forms, Listed

ASKED = b'{"labels":{"a":"one"},"name":"x1","uid":"u1"}'
ANSWERED = b'{"name": "x1", "uid": "u1", "labels": {"a": "one"}}'


def other(text: bytes, **values: str) -> bytes:
    """Return a text with other values."""
    for old, new in (("one", "a"), ("x1", "name"), ("u1", "uid")):
        text = text.replace(f'"{old}"'.encode(), f'"{values.get(new, old)}"'.encode())
    return text


@pytest.mark.parametrize(
    ("asked", "answered", "fits"),
    [
        pytest.param(ASKED, ANSWERED, True, id="the same"),
        pytest.param(other(ASKED, name="y2"), other(ANSWERED, name="y2"), True, id="another name"),
        pytest.param(other(ASKED, name="é"), other(ANSWERED, name="é"), True, id="bytes"),
        pytest.param(other(ASKED, name="u1", uid="x1"), other(ANSWERED, name="x1", uid="u1"), False, id="exchanged"),
        pytest.param(other(ASKED, name="y2"), ANSWERED, False, id="another answer"),
        pytest.param(other(ASKED, name="y22"), other(ANSWERED, name="y22"), False, id="a longer one"),
        pytest.param(ASKED.replace(b"labels", b"labour"), ANSWERED, False, id="another member"),
        pytest.param(other(ASKED, name='"'), other(ANSWERED, name='"'), False, id="a quote"),
        pytest.param(other(ASKED, name='\\"'), other(ANSWERED, name='\\"'), False, id="a backslash"),
        pytest.param(b"{}", ANSWERED, False, id="a short text"),
    ],
)
def test_what_fits(asked: bytes, answered: bytes, fits: bool) -> None:
    form = Form(ASKED, ANSWERED, b", ")
    assert form.size == len(ASKED)
    assert form.rest(b"{" + asked, 1, b"[[" + answered + b', "spec":{}}', 2) == (2 + len(answered) + 2 if fits else 0)


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(ANSWERED.replace(b"x1", b"x2"), id="another value"),
        pytest.param(ANSWERED.replace(b"labels", b"labour"), id="another member"),
        pytest.param(ANSWERED.replace(b'"u1"', b'"\\u0031"'), id="an escape"),
        pytest.param(ANSWERED.replace(b'"name"', b'"name": "x1", "name"'), id="twice"),
        pytest.param(ANSWERED[:-1], id="no JSON"),
    ],
)
def test_what_is_not_learned(answered: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(these metadata|unexpected end)"):
        Form(ASKED, answered, b", ")


def learned(forms: Forms, length: int, opening: bytes = b'{"kind":"A","metadata":', begins: int = 2) -> bool:
    """Learn from the first of two objects; return whether anything was learned for a length."""
    text = opening + ANSWERED + b', "spec":{}}'
    forms.learn(length, ASKED, Listed(text + b", " + text, opening, [0, len(text) + 2][:begins], 2), 0)
    return forms.of(opening)(length) is not None


def test_forms_are_learned_while_that_pays() -> None:
    forms = Forms()
    tries = limits.FORM_CREDIT // limits.FORM_PRICE
    assert [learned(forms, length) for length in range(tries + 1)] == [True] * tries + [False]
    forms.paid(limits.FORM_PRICE)
    assert learned(forms, tries)
    assert not learned(forms, tries + 1)


def test_few_forms_are_kept_and_of_one_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORMS_OF_METADATA", 2)
    forms = Forms()
    assert learned(forms, 1, b'{"kind":"B","metadata":')
    assert [learned(forms, length) for length in (1, 2, 3)] == [True] * 3
    known = forms.of(b'{"kind":"A","metadata":')
    assert [known(length) is not None for length in (1, 2, 3)] == [False, True, True]
    assert forms.of(b'{"kind":"B","metadata":')(1) is None


def test_where_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not learned(Forms(), 1, b'{"kind":')
    assert not learned(Forms(), 1, begins=1)
    monkeypatch.setattr(limits, "FORM_BYTES", len(ASKED) - 1)
    assert not learned(Forms(), 1)
