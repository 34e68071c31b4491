"""Paths of unknown fields: all if they are few, otherwise the first by name.

The work is bounded for paths of any length.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.waiting import prompt
from apiext.documents.document import clone
from apiext.documents.paths import short
from apiext.go_types import limits
from apiext.schema.compile import CompiledSchema, compile_schema

pytestmark = pytest.mark.rows("PRU-001", "PRU-008")

_NAMES = st.sampled_from(["a", "b", "a.b", "a-b", "a[0]", "[0]", ".", "", "a.", "é", "l" * 1030, "l" * 1031])
_VALUES = st.recursive(
    st.just(0), lambda below: st.dictionaries(_NAMES, below, max_size=4) | st.lists(below, max_size=12), max_leaves=40
)
_KNOWN = {"k": {"type": "string"}}


def _map_schema(levels: int) -> dict[str, Any]:
    """Return a schema of maps and lists that keeps only scalars in lists."""
    node: dict[str, Any] = {"type": "object", "properties": _KNOWN}
    for _ in range(levels):
        node = {"additionalProperties": node, "items": node}
    return node


def _leaves(value: Any, path: str, levels: int) -> Iterator[str]:
    """Yield the paths of unknown fields in a value with ``levels`` levels of maps."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]", max(levels - 1, 0))
    elif isinstance(value, dict):
        for name, item in value.items():
            below = f"{path}.{short(name)}"
            if levels:
                yield from _leaves(item, below, levels - 1)
            elif name != "k":
                yield below


@given(_VALUES, st.integers(0, 3))
def test_removed_paths_are_sorted(value: Any, levels: int) -> None:
    compiled = compile_schema({"type": "object", "properties": {"spec": _map_schema(levels)}})
    wanted = sorted(path[1:] for path in _leaves(value, ".spec", levels))
    assert compiled.normalize({"spec": clone(value)}) == wanted
    assert compiled.prune({"spec": clone(value)}) == wanted


def _removed_paths(compiled: CompiledSchema, document: dict[str, Any]) -> list[str]:
    told = compiled.normalize(clone(document))
    assert compiled.prune(document) == told
    return told


def test_removed_paths_are_limited_to_the_first_sorted() -> None:
    items = {"type": "array", "items": {"type": "object", "properties": {}}}
    members = {"l": items, "m": {"type": "object", "additionalProperties": items["items"]}}
    compiled = compile_schema({"type": "object", "properties": members})
    many = 20 * limits.MAX_UNKNOWN
    lists = sorted(f"l[{index}].u" for index in range(many))[: limits.MAX_UNKNOWN]
    assert _removed_paths(compiled, {"l": [{"u": 0} for _ in range(many)]}) == lists
    assert (
        _removed_paths(compiled, {"u": 0, "l": [[[{"u": 0}] for _ in range(many)]]})
        == sorted(f"l[0][{index}][0].u" for index in range(many))[: limits.MAX_UNKNOWN]
    )
    maps = sorted(f"m.{index}.u" for index in range(many))[: limits.MAX_UNKNOWN]
    assert _removed_paths(compiled, {"m": {str(index): {"u": 0} for index in range(many)}}) == maps
    fields = sorted(f"u{index}" for index in range(many))[: limits.MAX_UNKNOWN]
    assert _removed_paths(compiled, {f"u{index}": 0 for index in range(many)}) == fields


@pytest.mark.slow
@pytest.mark.parametrize("branches", [1, 500])
def test_only_reported_removed_paths_are_rendered(branches: int) -> None:
    """The work is bounded for fields at deep paths with long names.

    The fields are in one object below 100 levels, or below 100 more levels each.
    """
    levels = 100 if branches == 1 else 200
    node: dict[str, Any] = {"type": "object", "properties": _KNOWN}
    for _ in range(levels):
        node = {"type": "object", "additionalProperties": node}
    compiled = compile_schema({"type": "object", "properties": {"spec": node}})
    value: Any = {f"u{index}": 0 for index in range(2_000)}
    if branches > 1:
        value = {f"b{index}": _nested({"u": 0}, "q", 99) for index in range(branches)}
    value = {"spec": _nested(value, "p" * 1_000, 100)}
    compiled.prepare()
    again = clone(value)
    began = time.process_time()
    told = compiled.prune(value)
    prompt(time.process_time() - began, 0.4)
    tracemalloc.start()
    assert compiled.prune(again) == told
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 10 <= len(told) <= 11
    assert told == sorted(told)
    assert told[0].startswith("spec.ppp")
    assert peak < 64 * 1024 * 1024


def _nested(value: Any, name: str, levels: int) -> Any:
    for _ in range(levels):
        value = {name: value}
    return value


@pytest.mark.slow
def test_pruning_nested_lists_needs_little_memory() -> None:
    value: Any = [{"u": 0}]
    for _ in range(900):
        value = [value, *([[]] * 300)]
    compiled = compile_schema({"type": "object", "properties": {"a": {"type": "object", "additionalProperties": True}}})
    tracemalloc.start()
    told = compiled.prune({"a": {"x": value}})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told == ["a.x" + "[0]" * 901 + ".u"]
    assert peak < 8 * 1024 * 1024
