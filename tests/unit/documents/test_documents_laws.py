"""Properties of encodings and patches, with random documents and simple models."""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.waiting import PATIENCE, pause, prompt
from apiext.documents import json_patch, merge_patch, yaml_text
from apiext.documents.document import clone
from apiext.documents.encoding import DecodeError, decode_json, decode_yaml, encode, encode_with_float_flag, encode_yaml
from apiext.documents.json_errors import syntax_error

KEYS = st.sampled_from(["a", "b", "c/d", "e~f", "", "0", "ü", "é:"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0 is read as an integer
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FLOATS
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS | TEXTS, below, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS | TEXTS, VALUES, max_size=4)


def encode_equal(one: Any, other: Any) -> bool:
    return encode([one]) == encode([other])


@given(OBJECTS)
def test_encoded_json_is_decoded_unchanged(document: dict[str, Any]) -> None:
    raw = encode(document)
    again, notes = decode_json(raw)
    assert notes == []
    assert encode_equal(again, document)
    assert encode(again) == raw


@given(OBJECTS | st.dictionaries(KEYS, st.floats(allow_nan=False, allow_infinity=False), max_size=3))
def test_encoder_reports_floats(document: dict[str, Any]) -> None:
    raw, floats = encode_with_float_flag(document)
    assert raw == encode(document)
    assert floats or not any(isinstance(number, float) for number in numbers(document))


def numbers(value: Any) -> list[Any]:
    """Return all scalars of a document."""
    if not isinstance(value, dict | list):
        return [value]
    return [found for item in (value.values() if isinstance(value, dict) else value) for found in numbers(item)]


@given(OBJECTS | st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS, max_size=2), min_size=7, max_size=12))
def test_changing_clone_keeps_original(document: dict[str, Any]) -> None:
    raw = json.dumps(document)
    copied = clone(document)
    assert json.dumps(copied) == raw
    scramble(copied)
    assert json.dumps(document) == raw


@given(OBJECTS)
def test_json_formatting_does_not_change_result(document: dict[str, Any]) -> None:
    for text in (json.dumps(document), json.dumps(document, indent=3), json.dumps(document, ensure_ascii=False)):
        again, notes = decode_json(text.encode())
        assert notes == []
        assert encode_equal(again, document)


@given(OBJECTS)
def test_json_decodes_the_same_as_yaml(document: dict[str, Any]) -> None:
    raw = encode(document)
    breaks = {"\u2028", "\u2029", "\ufeff"}  # YAML 1.1 breaks lines at the first two and skips the third
    plain = all((ord(char) >= 0xA0 or char < "\x7f") and char not in breaks for char in raw.decode())
    if b"\\u" not in raw and plain:
        assert encode_equal(decode_yaml(raw)[0], yaml_text.decode_yaml(raw)[0])


PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\néß"), max_size=8)
PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | PLAIN,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(PLAIN, below, max_size=3),
    max_leaves=10,
)


@given(
    st.lists(
        st.sampled_from(["a", ":", ":", ",", "[", "]", "{", "}", "?", " ", "\n", '"', "'", "&a", "*b", "!t"]),
        max_size=40,
    ),
    st.integers(1, 9),
)
def test_placeholders_are_independent_of_piece_size(parts: list[str], stretch: int) -> None:
    """Other threads run during the search of large texts.

    One regular expression over 2.8 MB blocked them for 0.5 s.
    """
    text = "".join(parts)
    whole = yaml_text._with_placeholders(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_text, "_PIECE", stretch)
        assert yaml_text._with_placeholders(text) == whole


@pytest.mark.parametrize("text", ["{" + "a:" * 700_000 + "}", '"' + "a " * 700_000 + '"'], ids=["flow", "quoted"])
def test_yaml_decoding_lets_other_threads_run(text: str) -> None:
    """Other threads run while YAML is decoded, in the best of three runs.

    In one run, other programs may keep this thread from the processor.
    """
    longest = min(longest_stretch(text.encode()) for _ in range(3))
    prompt(longest, 0.01, "another thread waited for seconds of CPU")


def longest_stretch(raw: bytes) -> float:
    """Return the longest CPU time in seconds that reading takes before another thread runs."""
    over = threading.Event()
    reader = threading.Thread(target=lambda: (decode_yaml(raw), over.wait(PATIENCE)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        reader.start()
        clock = time.pthread_getcpuclockid(reader.ident or 0)
        longest = spent = quiet = 0.0
        while quiet < 50:  # rounds in which the reader was idle
            pause(0.0001)
            before, spent = spent, time.clock_gettime(clock)
            longest = max(longest, spent - before)
            quiet = quiet + 1 if spent - before < 0.00001 else 0
        return longest
    finally:
        sys.setswitchinterval(interval)
        over.set()
        reader.join()


@given(st.dictionaries(PLAIN, PLAIN_VALUES, max_size=3))
def test_encoded_yaml_is_decoded_unchanged(document: dict[str, Any]) -> None:
    assert decode_yaml(encode_yaml(document)) == (document, [])


@given(st.lists(st.tuples(KEYS, SCALARS), min_size=1, max_size=6))
def test_duplicate_fields_are_reported(members: list[tuple[str, Any]]) -> None:
    text = "{" + ", ".join(f"{json.dumps(key)} : {json.dumps(value)}" for key, value in members) + "}"
    document, notes = decode_json(text.encode())
    doubles = {key for key, _ in members if [name for name, _ in members].count(key) > 1}
    assert set(notes) == {f'duplicate field "{key}"' for key in doubles}
    assert list(document) == list(dict(members))


@given(st.binary(max_size=30) | st.text('{}[]":,tfn0-1.e\\u d8ual', max_size=25).map(str.encode))
def test_decoders_raise_only_decode_error(raw: bytes) -> None:
    fault = syntax_error(raw)
    told = decode_error(decode_json, raw)
    assert told == fault or (fault is None and told)
    decode_error(decode_yaml, raw)


def decode_error(decode: Callable[[bytes], Any], raw: bytes) -> str | None:
    """Return the error of decoding a text, None for valid texts."""
    try:
        decode(raw)
    except DecodeError as error:
        return str(error)
    return None


def merge_by_rfc_7386(target: Any, patch: Any) -> Any:
    """Return a document merged as in RFC 7386, section 2.

    Lists must not contain members that are null.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_by_rfc_7386(result.get(key), value)
    return result


NO_NULLS = st.recursive(
    st.booleans() | st.integers(0, 3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=8,
)
PATCHES = st.recursive(
    st.none() | NO_NULLS,
    lambda below: st.dictionaries(KEYS, below, max_size=3),
    max_leaves=8,
).filter(lambda patch: isinstance(patch, dict))


@given(OBJECTS, PATCHES)
def test_merge_patch_follows_rfc_7386(document: dict[str, Any], patch: dict[str, Any]) -> None:
    before = clone(document), clone(patch)
    result = merge_patch.apply(document, patch)
    assert encode_equal(result, merge_by_rfc_7386(document, patch))
    assert encode_equal([document, patch], list(before))
    assert encode_equal(merge_patch.apply(result, patch), result)


def scramble(value: Any) -> None:
    for item in list(value.values()) if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            scramble(item)
    value.clear()


@given(OBJECTS, PATCHES)
def test_changing_patched_document_keeps_inputs(document: dict[str, Any], patch: dict[str, Any]) -> None:
    before = clone(document), clone(patch)
    scramble(merge_patch.apply(document, patch))
    scramble(json_patch.apply(document, [{"op": "add", "path": "/a", "value": patch}]))
    assert encode_equal([document, patch], list(before))


def pointers(value: Any, path: str = "") -> list[str]:
    """Return all JSON pointers into a value."""
    found = [path]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        found += pointers(item, f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}")
    return found


def model_get(value: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


@given(OBJECTS.filter(bool), st.data())
def test_json_patch_operations_match_model(document: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(pointers(document)[1:]))
    value = data.draw(VALUES)
    found = model_get(document, path)
    replaced = json_patch.apply(document, [{"op": "replace", "path": path, "value": value}])
    assert encode_equal(model_get(replaced, path), value)
    assert encode_equal(json_patch.apply(replaced, [{"op": "replace", "path": path, "value": found}]), document)
    assert encode_equal(json_patch.apply(document, [{"op": "test", "path": path, "value": found}]), document)
    removed = json_patch.apply(document, [{"op": "remove", "path": path}])
    assert len(pointers(removed)) == len(pointers(document)) - len(pointers(found))
    assert encode_equal(json_patch.apply(removed, [{"op": "add", "path": path, "value": found}]), document)
    copied = json_patch.apply(document, [{"op": "copy", "from": path, "path": "/new place"}])
    moved = json_patch.apply(document, [{"op": "move", "from": path, "path": "/new place"}])
    assert encode_equal(copied["new place"], found)
    assert encode_equal(moved, {**removed, "new place": found})
