"""Unexpected behaviour of upstream that upstream tags in apiext/schema name.

The module has each tag that is not in a table of cases.
"""

from typing import Any

import pytest

from apiext.schema import mail
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors


def error_texts(schema: dict[str, Any], value: Any) -> list[str]:
    whole = {"type": "object", "properties": {"x": schema}}
    return [str(error) for error in compile_schema(whole).validate({"x": value}, None)]


@pytest.mark.rows("VAL-006")
@pytest.mark.parametrize(
    ("address", "wanted"),
    [("a (c) <a@b.c>", True), ("=?utf-8?q?a?= <a@b.c>", True), ("=?utf-8?q?a?= (c) <a@b.c>", False)],
)
def test_email_needs_a_plain_word_after_encoded_words(address: str, wanted: bool) -> None:
    # upstream: encoded words count only if a plain word follows
    assert mail.email(address) is wanted


@pytest.mark.rows("SCH-008")
def test_set_of_granular_objects_must_be_atomic() -> None:
    # upstream: prints the list type
    items = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"xs": {"type": "array", "x-kubernetes-list-type": "set", "items": items}},
    }
    [error] = definition_errors(schema, "s")
    assert str(error).startswith("s.properties[xs].items.x-kubernetes-map-type: Invalid value: null: must be atomic")


@pytest.mark.rows("VAL-009")
def test_enum_of_strings_matches_integer_as_code_point() -> None:
    # upstream: Go converts an integer to the character with this code point
    assert error_texts({"x-kubernetes-preserve-unknown-fields": True, "enum": ["A"]}, 65) == []
    assert error_texts({"x-kubernetes-preserve-unknown-fields": True, "enum": ["B"]}, 65) != []


@pytest.mark.rows("VAL-005")
def test_list_is_valid_for_string_with_format() -> None:
    # upstream: the check of the format reports a string of a wrong type; no check reports such a list
    assert error_texts({"type": "string", "format": "date"}, ["a list"]) == []
    assert error_texts({"type": "string", "format": "date"}, "no date") != []
