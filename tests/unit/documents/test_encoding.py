"""Decoding and encoding of documents: tables in cases/, limits, and numbers as in Go."""

import time
from typing import Any

import orjson
import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.conformance.support.waiting import prompt
from apiext.documents import limits
from apiext.documents.encoding import (
    DecodeError,
    decode_json,
    decode_overflowing,
    decode_yaml,
    encode,
    encode_in_order,
    encode_yaml,
    has_overflow,
    json_kind,
    pretty,
)


@pytest.mark.rows("ERR-11", "DEC-001")
@pytest.mark.parametrize("case", load(__file__, "json_errors"), ids=case_name)
def test_json_syntax_errors_are_those_of_go(case: Case) -> None:
    with pytest.raises(DecodeError) as refused:
        decode_json(case.text.encode())
    assert str(refused.value) == case.error


@pytest.mark.rows("DEC-001", "DEC-003")
def test_overflowing_numbers_become_placeholders() -> None:
    document, notes = decode_overflowing(b'{"a": [1e400, {"b": -1e400}], "c": %s, "c": 1e308, "d": 7}' % (b"9" * 400))
    (beyond, inner), end = document["a"], document["c"]
    assert (beyond, inner["b"], end, document["d"]) == (10**400, -(10**400), 1e308, 7)
    assert notes == ['duplicate field "c"']
    assert [has_overflow(value) for value in (document, document["a"], inner, end, [7, 2**64])] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.rows("DEC-003", "WRI-013")
@pytest.mark.parametrize("case", load(__file__, "duplicates"), ids=case_name)
def test_duplicate_fields_keep_last_value_and_are_noted(case: Case) -> None:
    assert decode_json(case.text.encode()) == (case.then, case.notes)


@pytest.mark.rows("DEC-001", "WRI-013")
@pytest.mark.parametrize("case", load(__file__, "yaml"), ids=case_name)
def test_yaml_is_decoded_as_in_go(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(DecodeError) as refused:
            decode_yaml(case.text.encode())
        assert str(refused.value) == case.error
        return
    document, notes = decode_yaml(case.text.encode())
    assert orjson.dumps(document) == orjson.dumps(case.then)
    assert notes == (case.notes or [])


NUMBERS = [
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", 2.0**63),
    ("18446744073709551615", 2.0**64),
    ("123456789012345678901234567890", 1.2345678901234568e29),
    ("-0", 0),
    ("1.0", 1.0),
    ("1e3", 1000.0),
]


@pytest.mark.rows("DEC-001")
@pytest.mark.parametrize(("text", "number"), NUMBERS)
def test_integers_are_exact_and_the_rest_are_floats(text: str, number: float) -> None:
    for raw in (f'{{"n":{text}}}', f'{{"n":"","n":{text}}}'):
        document, _ = decode_json(raw.encode())
        assert document == {"n": number}
        assert document["n"].__class__ is number.__class__


FLOATS = [
    (1.0, "1"),
    (-0.0, "-0"),
    (1e16, "10000000000000000"),
    (1e20, "100000000000000000000"),
    (1e21, "1e+21"),
    (1.5e300, "1.5e+300"),
    (0.000001, "0.000001"),
    (1e-7, "1e-7"),
    (1.25e-7, "1.25e-7"),
    (5e-324, "5e-324"),
    (123456.789, "123456.789"),
    (1.234e-5, "0.00001234"),
]


@pytest.mark.rows("DEC-001")
@pytest.mark.parametrize(("number", "text"), FLOATS)
def test_floats_print_as_go_prints_them(number: float, text: str) -> None:
    assert encode({"a": number, "b": [number]}) == f'{{"a":{text},"b":[{text}]}}'.encode()


@pytest.mark.rows("NEG-006")
def test_encode_sorts_keys_and_encode_in_order_does_not() -> None:
    document = {"b": {"d": 1, "c": 2.0}, "a": None}
    assert encode(document) == b'{"a":null,"b":{"c":2,"d":1}}'
    assert encode_in_order(document) == b'{"b":{"d":1,"c":2},"a":null}'


@pytest.mark.rows("NEG-005")
def test_pretty_indents_by_two_spaces() -> None:
    assert pretty(b'{"b":[1,2.50,{}],"a":[]}') == b'{\n  "b": [\n    1,\n    2.5,\n    {}\n  ],\n  "a": []\n}'
    for number in (b"100000000000000000000", b"-100000000000000000000", b"9223372036854775808"):
        assert pretty(b"[%b]" % number) == b"[\n  %b\n]" % number


TEXTS = [
    (b'{"k":"\xff\xfe"}', {"k": "\ufffd\ufffd"}),
    (b'{"k":"\\ud800"}', {"k": "\ufffd"}),
    (b'{"\\udc00k":1}', {"\ufffdk": 1}),
    (b'{"k":"\\ud83d\\ude00"}', {"k": "\U0001f600"}),
    (b'{"k":"\\u0000"}', {"k": "\x00"}),
]


@pytest.mark.parametrize(("raw", "document"), TEXTS)
def test_invalid_characters_are_replaced(raw: bytes, document: Any) -> None:
    assert decode_json(raw) == (document, [])


@pytest.mark.rows("DEC-001")
@pytest.mark.parametrize("depth", [1_000, 10_000, 1_000_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused_quickly(opening: str, closing: str, depth: int) -> None:
    raw = (opening * depth + "1" + closing * depth).encode()
    before = time.perf_counter()
    with pytest.raises(DecodeError, match=f"invalid character '\\{opening[0]}' exceeded max depth"):
        decode_json(raw)
    prompt(time.perf_counter() - before, 1)


def test_syntax_error_after_many_escapes_is_found() -> None:
    with pytest.raises(DecodeError, match="invalid character 'x' after array element"):
        decode_json(b'["' + rb"\n\u00e9" * 1_000 + b'" x]')


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    text = "[" * 1000 + '\\"{'
    document = [{"a": "[{" * 400, "b\\": '"[['}] * 200 + [text]
    assert decode_json(orjson.dumps(document)) == (document, [])


def test_document_of_maximum_depth_is_encoded() -> None:
    deepest = "[" * limits.MAX_DEPTH + "]" * limits.MAX_DEPTH
    document, _ = decode_json(deepest.encode())
    assert encode(document) == deepest.encode()
    with pytest.raises(DecodeError):
        decode_json(f"[{deepest}]".encode())


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefghi", "bcdefghij", strict=True)),
        "a: &a {b: 1}\nc: [" + "*a," * 2_000 + "]\n",
        f"a: &a {'x' * 4_000}\nc: [{'*a,' * 999}]\n",
        f"a: &a {{{'x' * 400}: 1}}\nb: &b [{'*a,' * 90}]\nc: [{'*b,' * 90}]\n",
        "[" * 100_000,
        "- " * 5_000 + "x",
        "{a: " * 5_000,
    ],
    ids=["nested aliases", "many aliases", "long texts", "long keys", "deep flow", "deep block", "deep mappings"],
)
def test_yaml_bombs_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode_yaml(text.encode())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_yaml_encoding_follows_byte_order_mark(encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""  # the other codecs write a byte order mark themselves
    assert decode_yaml(f"{mark}a: {{é: 😀}}\n".encode(encoding)) == ({"a": {"é": "😀"}}, [])


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a: \xff", "invalid leading UTF-8 octet"),
        (b"a: \xc3(", "invalid trailing UTF-8 octet"),
        (b"a: \xe2\x82", "incomplete UTF-8 octet sequence"),
        (b"a: \xf0\x9f\x98", "incomplete UTF-8 octet sequence"),
        (b"a: \xf5(((", "invalid trailing UTF-8 octet"),
        (b"a: \xf8\x80\x80\x80", "invalid leading UTF-8 octet"),
        (b"a: \xc0\x80", "invalid length of a UTF-8 sequence"),
        (b"a: \xe0\x9f\xbf", "invalid length of a UTF-8 sequence"),
        (b"a: \xf0\x8f\xbf\xbf", "invalid length of a UTF-8 sequence"),
        (b"a: \xed\xa0\x80", "invalid Unicode character"),
        (b"a: \xf4\x90\x80\x80", "invalid Unicode character"),
        (b"\xff\xfea\0:", "incomplete UTF-16 character"),
        (b"\xff\xfe\x00\xd8", "incomplete UTF-16 surrogate pair"),
        (b"\xff\xfe\x00\xd8a\0", "expected low surrogate area"),
        (b"\xfe\xff\xdc\x00", "unexpected low surrogate area"),
    ],
)
def test_invalid_utf8_and_utf16_in_yaml_are_refused(raw: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=f"^yaml: {text}$"):
        decode_yaml(raw)


@pytest.mark.parametrize("raw", [b"a: \xff", b"a: \x00b", b"\tx: 1"])
def test_invalid_yaml_characters_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError, match="yaml: "):
        decode_yaml(raw)


@pytest.mark.rows("NEG-001")
def test_encoded_yaml_has_sorted_keys() -> None:
    document = {
        "b": "yes",
        "a": [1, "1", None, True, "0x1f", "a\nb\n", "x: y", " lead", "", {}, []],
        "c": {"d": "null", "e": "2020-01-01", "f": 1.5},
    }
    raw = encode_yaml(document)
    assert decode_yaml(raw) == (document, [])
    assert raw.startswith(b'a:\n- 1\n- "1"\n')


@pytest.mark.rows("NEG-001")
def test_encoded_yaml_equals_output_of_go() -> None:
    document = {
        **dict.fromkeys(("v10", "v2", "a~", "ab", "1", "A", "x01", "x000", "x1"), 1),
        "numbers": [1.5, 1e21, 1e-07, 1e-05, 0.0001, 1234567.5, 123456.5, 25000000000.0, 1e19, -0.5],
        "wide": [2.0**63, 2.0**64 - 2**11, 2.0**64, -(2.0**63), -(2.0**63) + 2**10, -1e19],
        "texts": [
            "2020-01-01",
            "2026-11-22T05:54:00Z",
            "1:20",
            "=",
            "_1",
            ".1_",
            "-_1",
            "9e999",
            "\n",
            "word " * 20 + "end",
        ],
    }
    assert encode_yaml(document).decode().splitlines() == [
        '"1": 1', "A: 1", "a~: 1", "ab: 1", "numbers:", "- 1.5", "- 1e+21", "- 1e-07", "- 1e-05",
        "- 0.0001", "- 1.2345675e+06", "- 123456.5", "- 25000000000", "- 10000000000000000000", "- -0.5",
        "texts:", '- "2020-01-01"', '- "2026-11-22T05:54:00Z"', '- "1:20"', "- =", "- _1", "- .1_", '- "-_1"',
        "- 9e999", "- |2+", "",
        "- " + "word " * 15 + "word", "  word word word word end", "v2: 1", "v10: 1", "wide:",
        "- 9223372036854776000", "- 18446744073709550000", "- 1.8446744073709552e+19", "- -9.223372036854776e+18",
        "- -9223372036854775000", "- -1e+19", "x000: 1", "x1: 1", "x01: 1",
    ]  # fmt: skip


@pytest.mark.rows("NEG-001")
@pytest.mark.parametrize("text", ["...", "...\n", "a\n...\n", "...\n\n", "\n...\n", "---\n...\n", "a\n\n\n"])
def test_yaml_strings_keep_trailing_document_end_marker(text: str) -> None:
    for document in ({"a": text}, {"a": [text]}):
        assert decode_yaml(encode_yaml(document)) == (document, [])


def test_numbers_in_keys_overflow_as_in_go() -> None:
    least = ["x9223372036854775808", "x1" + "0" * 63]  # int64 minimum: the second is 5 ** 63 * 2 ** 63
    keys = [*least, "x18446744073709551616", "x1" + "0" * 5000, "x5"]  # the numbers overflow to 0, 0 and 5
    text = encode_yaml(dict.fromkeys(reversed(keys), 1)).decode()
    places = [text.index(f"{key}\n" if len(key) > 1000 else f"{key}:") for key in keys]
    assert places == sorted(places)


def test_long_numbers_in_keys_are_compared_in_linear_time() -> None:
    keys = [f"{'1' * 40_000}x{end}a" for end in "01"]
    began = time.process_time()
    text = encode_yaml(dict.fromkeys(reversed(keys), 1)).decode()
    prompt(time.process_time() - began, 1)  # scanning the digits from each of them on would take ten times as long
    assert text.index("x0a") < text.index("x1a")


def test_json_kind_names_json_types() -> None:
    values = ({}, [], "x", 1, 1.5, True, None)
    assert [json_kind(value) for value in values] == ["object", "array", "string", "number", "number", "bool", "null"]
