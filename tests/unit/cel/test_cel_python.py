"""The engine and cel-python return equal values, or both an error.

The expressions are those that cel-python supports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import celpy
import pytest
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from apiext.cel.environment import Environment, Program
from apiext.cel.values import Duration, Map, Timestamp, Uint
from apiext.conformance.support.cases import Case, read
from tests.unit.cel.schema_types import declare
from tests.unit.cel.spec_values import same

pytestmark = pytest.mark.rows("CEL-001", "CEL-007")
INTEGER, STRING = {"type": "integer"}, {"type": "string"}
REPLICAS = {"type": "object", "properties": {"minReplicas": INTEGER, "replicas": INTEGER, "maxReplicas": INTEGER}}
STATUS = {"type": "object", "properties": {"availableReplicas": INTEGER}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "integer": INTEGER,
    "string": STRING,
    "integers": {"type": "array", "items": INTEGER},
    "strings": {"type": "array", "items": STRING},
    "replicas": REPLICAS,
    "map": {"type": "object", "additionalProperties": REPLICAS},
    "whole": {"type": "object", "properties": {"spec": REPLICAS, "status": STATUS}},
}
ERROR = object()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CASES = [Case(row) for row in read(Path(__file__).parent / "cases" / "cel_python.yaml")]


@pytest.fixture(autouse=True, scope="module")
def _recursion() -> Iterator[None]:
    """Restore the recursion limit, which cel-python's environments change for the whole process."""
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


def nanoseconds(span: timedelta) -> int:
    return (span.days * 86_400 + span.seconds) * 10**9 + span.microseconds * 1000


def plain(value: Any) -> Any:
    """Convert a value of cel-python to a value of this engine."""
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, celtypes.MapType):
        made = Map()
        for key, inner in value.items():
            made.set(plain(key), plain(inner))
        return made
    table: list[tuple[type, Callable[[Any], Any]]] = [
        (celtypes.BoolType, bool),
        (celtypes.UintType, Uint),
        (celtypes.IntType, int),
        (celtypes.DoubleType, float),
        (celtypes.StringType, str),
        (celtypes.BytesType, bytes),
        (celtypes.TimestampType, lambda it: Timestamp(nanoseconds(it - EPOCH))),
        (celtypes.DurationType, lambda it: Duration(nanoseconds(it))),
    ]
    return next((ours(value) for theirs, ours in table if isinstance(value, theirs)), value)


def variables_of(case: Case) -> dict[str, Any]:
    return {name: case[name] for name in ("self", "oldSelf") if name in case}


def cel_python_result(case: Case) -> Any:
    """Return the result of cel-python, with its exceptions and ValueError as ERROR."""
    environment = celpy.Environment()
    variables = {name: json_to_cel(value) for name, value in variables_of(case).items()}
    try:
        return plain(environment.program(environment.compile(case.text)).evaluate(variables))
    except (CELParseError, CELEvalError, ValueError):
        return ERROR


def engine_result(case: Case) -> Any:
    """Return the result of both engines, which must be equal."""
    found = declare(SCHEMAS[case.kind], name="T") if case.kind else None
    program = Environment(dict.fromkeys(variables_of(case), found[0]) if found else {}).compile(case.text)
    if not isinstance(program, Program):
        return ERROR
    one, other = program.interpret(variables_of(case)), program.evaluate(variables_of(case))
    assert one.error == other.error
    assert one.error is not None or same(one.value, other.value)
    return ERROR if one.error is not None else one.value


@pytest.mark.parametrize("case", CASES, ids=[f"{number}: {case.text}" for number, case in enumerate(CASES)])
def test_engine_agrees_with_cel_python(case: Case) -> None:
    mine, theirs = engine_result(case), cel_python_result(case)
    agree = mine is theirs or (ERROR not in (mine, theirs) and same(mine, theirs))
    assert agree is not bool(case.differs), (mine, theirs, case.differs)
