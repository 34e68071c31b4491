"""The documents of a file: their first lines and their decoding."""

from __future__ import annotations

import pytest

from apiext.documents.errors import DecodeError
from apiext.tools.manifests import decode, parts


def test_document_parts_have_their_first_line() -> None:
    raw = b"# only words\n---\na: 1\n--- # next\n\n---\nb: 2\nc: 3\n---\n# nothing\n"
    assert list(parts(raw)) == [(3, b"a: 1\n"), (7, b"b: 2\nc: 3\n")]
    assert list(parts(b"")) == []
    assert list(parts(b"a: 1")) == [(1, b"a: 1")]
    assert list(parts(b"a: 1\r\n---\r\nb: 2\r\n")) == [(1, b"a: 1\r\n"), (3, b"b: 2\r\n")]
    assert list(parts(b"--- {a: 1}\n---\tb\n---c: 1")) == [(1, b" {a: 1}\n"), (2, b"\tb\n---c: 1")]
    assert list(parts(b"text: |\n  ---\n  b\n")) == [(1, b"text: |\n  ---\n  b\n")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": "}{"} {"b": 1}\n\n{"c":\n1}\n{}', [(1, '{"a": "}{"}'), (1, '{"b": 1}'), (3, '{"c":\n1}'), (5, "{}")]),
        ('x: 1\n---\n{"a": 1}\n{"b": 2}\n', [(1, "x: 1\n"), (3, '{"a": 1}'), (4, '{"b": 2}')]),
        ('{"a": 1}{b: 2}', [(1, '{"a": 1}{b: 2}')]),
        ('{"a": 1}{"b": 2}}', [(1, '{"a": 1}{"b": 2}}')]),
        ('a: "} {"', [(1, 'a: "} {"')]),
        ("{{" + "[" * 100_000 + "} {", [(1, "{{" + "[" * 100_000 + "} {")]),
    ],
)
def test_concatenated_json_values_are_split(text: str, wanted: list[tuple[int, str]]) -> None:
    assert list(parts(text.encode())) == [(line, piece.encode()) for line, piece in wanted]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"a": 2024-01-01}', {"a": "2024-01-01"}),
        ("{a: 1, b: 1_0}", {"a": 1, "b": 10}),
        ("a: [", "yaml: line 1: did not find expected node content"),
        ('{"a": ]}', "invalid character ']' looking for beginning of value"),
        ('{"a": 1}\n...\n', {"a": 1}),
        ('{"a": 1} # one\n# two\n...# three', "invalid character '#' after top-level value"),
        ('{"a": 1} # one\n# two\n\n... # three\n...\n', {"a": 1}),
        ('{"a": "#"}# one\n', "invalid character '#' after top-level value"),
        ('{"a": 1} # one\nb: 2', "invalid character '#' after top-level value"),
        ('{"a": 1} ...', "invalid character '.' after top-level value"),
        ("{}" + "\udcff", "invalid character 'ÿ' after top-level value"),
        ('{"a": 1}}', "invalid character '}' after top-level value"),
        ('{"a": 1}{b: 2}', "invalid character '{' after top-level value"),
    ],
)
def test_documents_that_are_not_json_are_read_as_yaml(text: str, wanted: object) -> None:
    try:
        found: object = decode(text.encode(errors="surrogateescape"))[0]
    except DecodeError as error:
        found = str(error)
    assert found == wanted
