"""Paths of embedded resources below long map keys are built one at a time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from apiext.documents.document import clone
from apiext.schema.compile import compile_schema

pytestmark = pytest.mark.rows("MET-004", "MET-005")


def test_embedded_resources_with_long_paths_need_little_memory() -> None:
    levels, count = 100, 500
    resource = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    node: dict[str, Any] = {"type": "object", "additionalProperties": resource}
    value: dict[str, Any] = {f"u{index}": {"apiVersion": "v1", "kind": "K"} for index in range(count)}
    value["u7"]["metadata"] = {"name": "a", "other": 1}
    for _ in range(levels):
        node, value = {"type": "object", "additionalProperties": node}, {"p" * 1_000: value}
    compiled = compile_schema({"type": "object", "properties": {"spec": node}})
    document = {"spec": value}
    compiled.normalize(clone(document))
    tracemalloc.start()
    told = compiled.normalize(document)
    assert compiled.validate(document, None) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    steps = f"[{'p' * 1_000}]" * levels
    assert told == [f"spec{steps}[u7].metadata.other"]
    assert peak < 20 * 1024 * 1024
