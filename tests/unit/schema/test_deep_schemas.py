"""Accepted schemas at the limit of nesting can be stored and read, and report errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

import pytest

from apiext.documents.document import clone
from apiext.schema import limits
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors, ratchets, rule_warnings
from apiext.schema.parse import parse
from apiext.schema.structural import Structural
from apiext.schema.traverse import too_deep

pytestmark = pytest.mark.rows("VAL-001", "SCH-014")

Schema = dict[str, Any]
_MAPS: dict[str, Callable[[Schema], Schema]] = {
    "maps": lambda below: {"type": "object", "additionalProperties": below},
    "bounded maps": lambda below: {
        "type": "object", "additionalProperties": below, "minProperties": 1, "maxProperties": 9, "nullable": True
    },
    "maps with defaults": lambda below: {"type": "object", "additionalProperties": below, "default": {}},
    "members": lambda below: {"type": "object", "properties": {"p": below}, "required": ["p"]},
    "members with defaults": lambda below: {"type": "object", "properties": {"p": below}, "default": {}},
    "members, others kept": lambda below: {
        "type": "object", "properties": {"p": below}, "x-kubernetes-preserve-unknown-fields": True
    },
    "ruled maps": lambda below: {
        "type": "object", "additionalProperties": below, "maxProperties": 1,
        **({"x-kubernetes-validations": [{"rule": "size(self) < 3"}]} if "properties" in below else {}),
    },
}  # fmt: skip
_LISTS: dict[str, Callable[[Schema], Schema]] = {
    "lists": lambda below: {"type": "array", "items": below},
    "bounded lists": lambda below: {"type": "array", "items": below, "minItems": 1, "maxItems": 9},
    "lists with defaults": lambda below: {"type": "array", "items": below, "default": []},
}


def _deepest(around: Callable[[Schema], Schema], number: int) -> tuple[Schema, int]:
    """Return a schema of the maximum depth that is unique among tests, and its number of levels."""
    leaf = {"type": "object", "properties": {"x": {"type": "string", "maxLength": 5000 + number}}}
    levels = 0
    while not too_deep({"type": "object", "properties": {"spec": around(around(leaf))}}):
        leaf, levels = around(leaf), levels + 1
    return {"type": "object", "properties": {"spec": leaf}}, levels


def _spec(value: Any, levels: int, listed: bool) -> dict[str, Any]:
    for _ in range(levels):
        value = [value] if listed else {"p": value}
    return {"spec": value}


def _call_with_deep_stack(work: Callable[[], None]) -> None:
    """Call the function with a stack as deep as the server's."""

    def keep_error() -> None:
        try:
            below(150)
        except BaseException as error:
            raised.append(error)

    def below(frames: int) -> None:
        below(frames - 1) if frames else work()

    raised: list[BaseException] = []
    thread = Thread(target=keep_error)
    thread.start()
    thread.join()
    for error in raised:
        raise error


@pytest.mark.parametrize("number", range(len(_MAPS) + len(_LISTS)), ids=[*_MAPS, *_LISTS])
def test_schema_of_maximum_depth_compiles_and_validates(number: int) -> None:
    listed = number >= len(_MAPS)
    schema, levels = _deepest([*_MAPS.values(), *_LISTS.values()][number], number)
    assert levels > limits.MAX_SCHEMA_NESTING // 2 - 5
    good, bad = (_spec({"x": value}, levels, listed) for value in ("y", 1))
    _call_with_deep_stack(partial(_check_validation, schema, good, bad))
    _call_with_deep_stack(partial(_check_fast_paths, schema, good))


def _check_validation(schema: Schema, good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert definition_errors(schema, "S") == []
    assert rule_warnings(schema, "S") == []
    assert ratchets([schema]).structural
    compiled = compile_schema(schema)
    assert compiled.normalize(clone(good)) == []
    assert compiled.validate(good, None) == []
    assert compiled.rules(good, None) == ([], [])
    assert [error.field[-3:] for error in compiled.validate(bad, None)] == ["].x" if "[" in str(bad) else "p.x"]
    assert compiled.validate(bad, clone(bad)) == []
    assert len(compiled.validate(bad, good)) == 1


def _check_fast_paths(schema: Schema, good: dict[str, Any]) -> None:
    _clear_compiled(parse(schema))
    compiled = compile_schema(schema)
    compiled.prepare(quickly=True)
    assert compiled.is_normal(good)
    assert not compiled.from_storage(clone(good))


def _clear_compiled(root: Structural) -> None:
    """Clear the compiled functions of all nodes."""
    stack = [root]
    while stack:
        node = stack.pop()
        node.compiled.clear()
        stack += node.properties.values()
        stack += [below for below in (node.items, node.map_values) if below is not None]
