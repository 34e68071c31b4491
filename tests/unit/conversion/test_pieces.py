"""A response decoded object by object has the same objects as one decoded at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.converted import NeedsConversion
from apiext.conversion import pieces, review, webhook
from apiext.conversion.review import ConversionError
from apiext.documents import limits

TYPE = {"apiVersion": "example.com/v2", "kind": "Widget"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('"}{,: \\aé', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("a", "kind", "apiVersion", "convertedObjects")), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.lists(
    st.dictionaries(st.text(max_size=3), VALUES, max_size=3).map(lambda rest: {**TYPE, **rest}), max_size=5
)
WRITERS = (
    orjson.dumps,
    lambda document: json.dumps(document).encode(),
    lambda document: json.dumps(document, indent=1).encode(),
)


def conversion_requests(count: int) -> list[NeedsConversion]:
    """Return ``count`` requests for conversions."""
    text = b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{}}'
    return [NeedsConversion(text, "example.com/v2", number, lambda *_: None) for number in range(count)]


def read_objects(asked: list[NeedsConversion], raw: bytes) -> list[Any]:
    """Return the objects in the response to the review "u"."""

    async def reading() -> list[Any]:
        found = await webhook.converted_objects("v1", "u", asked, raw)
        return [await webhook.object_of(found, index) for index in range(len(found))]

    return asyncio.run(reading())


def response_with(objects: list[Any], **more: Any) -> dict[str, Any]:
    """Return a response with converted objects."""
    response = {"uid": "u", "convertedObjects": objects, "result": {"status": "Success"}, **more}
    return {"kind": review.KIND, "apiVersion": f"{review.GROUP}/v1", "response": response}


@given(OBJECTS, st.sampled_from(WRITERS), VALUES)
def test_split_response_equals_whole_decoding(objects: list[Any], write: Any, more: Any) -> None:
    raw = write(response_with(objects, more=more))
    assert read_objects(conversion_requests(len(objects)), raw) == json.loads(raw)["response"]["convertedObjects"]


@pytest.mark.parametrize("write", WRITERS[:2])
def test_plain_objects_are_split(write: Any) -> None:
    objects = [{**TYPE, "spec": {"n": number}} for number in range(4)]
    split = pieces.split(write(response_with(objects)), 4)
    assert split is not None
    assert [orjson.loads(split[1].text(number)) for number in range(3)] == objects[:3]
    assert orjson.loads(split[0]) == response_with(objects[3:])


@pytest.mark.parametrize("write", WRITERS[:2])
def test_split_ignores_objects_in_metadata(write: Any) -> None:
    owners = [{**TYPE, "name": "a"}, {**TYPE, "name": "b"}]
    objects = [{**TYPE, "metadata": {"name": f"o{number}", "ownerReferences": owners}} for number in range(3)]
    split = pieces.split(write(response_with(objects)), 3)
    assert split is not None
    assert [orjson.loads(split[1].text(number)) for number in range(2)] == objects[:2]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"response":{}}', id="no list"),
        pytest.param(orjson.dumps(response_with([{**TYPE, "more": [TYPE, TYPE]}, TYPE])), id="objects in objects"),
        pytest.param(
            orjson.dumps(response_with([TYPE, {**TYPE, "convertedObjects": []}])), id="two lists of converted objects"
        ),
        pytest.param(orjson.dumps(response_with([[], TYPE])), id="an array in place of an object"),
        pytest.param(
            orjson.dumps({"response": {"more": [TYPE, TYPE], "convertedObjects": [TYPE]}}), id="objects before the list"
        ),
    ],
)
def test_ambiguous_response_is_not_split(raw: bytes) -> None:
    assert pieces.split(raw, 2) is None


@pytest.mark.rows("VER-005")
@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (b'"n":1}', b'"n":}', "json parse error: invalid character '}' looking for beginning of value"),
        (b'"uid":"u"', b'"uid":"w"', 'expected response.uid="u", got "w"'),
        (b'"n":3}}]', b'"n":3}}', "json parse error: invalid character ':' after array element"),
    ],
)
def test_fault_in_split_response_has_error_of_whole_response(old: bytes, new: bytes, error: str) -> None:
    raw = orjson.dumps(response_with([{**TYPE, "spec": {"n": number}} for number in range(4)])).replace(old, new)
    with pytest.raises(ConversionError) as failed:
        read_objects(conversion_requests(4), raw)
    assert str(failed.value).endswith(error)
    assert str(failed.value).startswith("conversion webhook for example.com/v1, Kind=Widget failed: ")


def test_invalid_utf8_is_replaced_by_slow_decoder() -> None:
    raw = orjson.dumps(response_with([{**TYPE, "spec": f"n{number}"} for number in range(4)])).replace(b"n1", b"\xff")
    found = read_objects(conversion_requests(4), raw)
    assert [it["spec"] for it in found] == ["n0", "\ufffd", "n2", "n3"]


@pytest.mark.parametrize("write", WRITERS)
def test_texts_of_returns_text_of_each_converted_object(write: Any) -> None:
    objects = [{"a": [1, "]"]}, {}, [], "x,y", 7]
    raw = write(response_with(objects))
    texts = pieces.texts_of(raw)
    assert [json.loads(text) for text in texts] == objects
    assert all(text.encode() in raw for text in texts)
    assert pieces.texts_of(raw[: raw.index(b"x,y")]) == texts[:3]
    assert pieces.texts_of(b'{"convertedObjects": []}') == pieces.texts_of(b"{}") == []


@pytest.mark.rows("VER-005")
@pytest.mark.parametrize("crowded", [(0,), (1,), (0, 1), ()], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_container_limit_applies_to_converted_objects(
    crowded: tuple[int, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CONTAINERS", 300)
    objects = [{**TYPE, "metadata": {}, "spec": [[]] * (400 if number in crowded else 10)} for number in range(count)]
    raw = orjson.dumps(response_with(objects))
    if not any(number in crowded for number in range(count)):
        assert read_objects(conversion_requests(count), raw) == objects
        return
    with pytest.raises(ConversionError, match="json parse error: more than 300 objects and lists"):
        read_objects(conversion_requests(count), raw)
