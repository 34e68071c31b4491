"""Nested defaults are counted for objects that get them, not for definitions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from apiext.conformance.support.waiting import prompt
from apiext.schema import limits
from apiext.schema.budget import DEFAULTS
from apiext.schema.compile import CompiledSchema, compile_schema
from apiext.schema.definitions import definition_errors, ratchets

pytestmark = pytest.mark.rows("NUL-004", "DEF-005")


def _default_strings(count: int, text: str = "sixteen letters.") -> dict[str, Any]:
    return {f"p{index}": {"type": "string", "default": text} for index in range(count)}


def _below_defaults(levels: int, members: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "object", "default": {}, "properties": members}
    for _ in range(levels):
        node = {"type": "object", "default": {}, "properties": {"q": node}}
    return {"type": "object", "properties": {"spec": node}}


def _deepest(document: dict[str, Any], levels: int) -> dict[str, Any]:
    found: dict[str, Any] = document["spec"]
    for _ in range(levels):
        found = found["q"]
    return found


@pytest.mark.slow
def test_compiling_definitions_spends_no_defaults_budget() -> None:
    for index in range(200):
        schema = _below_defaults(6, _default_strings(300, f"{index:016}"))
        compile_schema(schema).prepare()
        assert ratchets([schema]).pruned_defaults
    assert DEFAULTS.left == DEFAULTS.full


@pytest.mark.parametrize("count", [3, 20_000])
def test_repeated_defaulting_gives_equal_results(count: int) -> None:
    schema = _below_defaults(100, _default_strings(count, f"of {count}"))
    assert definition_errors(schema, "S") == []
    compiled = compile_schema(schema)
    for _ in range(5):
        new: dict[str, Any] = {}
        assert compiled.normalize(new) == []
        assert _deepest(new, 100) == {f"p{index}": f"of {count}" for index in range(count)}
        stored: dict[str, Any] = {"spec": {"q": {}}}
        assert compiled.from_storage(stored)
        assert stored == new
        assert DEFAULTS.spent < limits.MAX_DEFAULTED // 8
    assert compiled.rules(new, None) == ([], [])


def test_nested_defaults_are_not_shared_between_objects() -> None:
    compiled = compile_schema(_below_defaults(2, _default_strings(2_000)))
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    compiled.normalize(first)
    compiled.normalize(second)
    _deepest(first, 2)["p0"] = "changed"
    assert _deepest(second, 2)["p0"] == "sixteen letters."


def _lists_of_lists(levels: int) -> CompiledSchema:
    node: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string", "default": "a"}}}
    for _ in range(levels):
        items = {"type": "array", "items": node, "default": [{}] * 50}
        node = {"type": "object", "properties": {"l": items}}
    return compile_schema({"type": "object", "properties": {"spec": {**node, "nullable": True}}})


@pytest.mark.slow
def test_multiplying_defaults_fail_only_objects_that_get_them() -> None:
    began = time.process_time()
    compiled = _lists_of_lists(10)  # 50 ** 10 defaults
    compiled.prepare()
    for _ in range(2):
        with pytest.raises(ValueError, match="would add more than"):
            compiled.normalize({"spec": {}})
        with pytest.raises(ValueError, match="would add more than"):
            compiled.from_storage({"spec": {}})
        assert compiled.normalize({"spec": None}) == []
        assert compiled.normalize({"spec": {"l": []}}) == []
        assert not compiled.from_storage({"spec": {"l": []}})
    prompt(time.process_time() - began, 10.0)


def test_multiplying_defaults_below_the_limit_are_set() -> None:
    new: dict[str, Any] = {"spec": {}}
    _lists_of_lists(3).normalize(new)
    items = [below for one in new["spec"]["l"] for two in one["l"] for below in two["l"]]
    assert items == [{"x": "a"}] * 50**3


def test_growth_covers_defaults_of_list_items() -> None:
    items = _below_defaults(1, _default_strings(2_000))
    compiled = compile_schema({"type": "object", "properties": {"l": {"type": "array", "items": items}}})
    document: dict[str, Any] = {"l": [{}]}
    compiled.normalize(document)
    compiled.rules(document, None)
    assert compiled.growth >= 2_000 * len("sixteen letters.")


def test_embedded_metadata_gets_nested_defaults() -> None:
    labels = {"type": "object", "default": {}, "properties": _default_strings(2_000)}
    metadata = {"type": "object", "default": {"name": "a", "other": 1}, "properties": {"labels": labels}}
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"metadata": metadata}}
    compiled = compile_schema({"type": "object", "properties": {"spec": resource}})
    document: dict[str, Any] = {"spec": {"apiVersion": "v1", "kind": "K"}}
    compiled.normalize(document)
    assert len(document["spec"]["metadata"]["labels"]) == 2_000
    assert document["spec"]["metadata"]["name"] == "a"
    assert "other" not in document["spec"]["metadata"]
