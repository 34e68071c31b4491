"""Patterns with named character classes: strings that match, and errors of invalid patterns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.target import Target

ROWS = [Case(row) for row in read(Path(__file__).parent / "patterns.yaml")]
GOOD = [row for row in ROWS if not row.told]
BAD = [row for row in ROWS if row.told]


def with_patterns(rows: list[Case]) -> dict[str, Any]:
    """Return a definition of objects whose spec has a string field for each row: f0, f1, …."""
    fields = {f"f{at}": {"type": "string", "pattern": row.pattern} for at, row in enumerate(rows)}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return definition(fresh_group(), schema={"openAPIV3Schema": schema})


@pytest.fixture(scope="module")
def texts(server: Target) -> Resource:
    """A resource with a string field for each valid pattern."""
    api = server.client()
    return Resource(api, establish(api, with_patterns(GOOD))["spec"]["group"], "widgets", "Widget")


@pytest.mark.rows("STR-010")
@pytest.mark.parametrize("row", GOOD, ids=case_name)
def test_values_that_match_a_pattern(texts: Resource, row: Case) -> None:
    field = f"f{GOOD.index(row)}"
    for text in row.takes:
        texts.api.post(texts.path(), texts.make("a", **{field: text}), dryRun="All").expect(201)
    for text in row.refuses:
        told = texts.api.post(texts.path(), texts.make("a", **{field: text}), dryRun="All").expect(422)
        assert f"should match '{row.pattern}'" in told["message"], told


@pytest.mark.rows("STR-010")
@pytest.mark.parametrize("row", BAD, ids=case_name)
def test_errors_of_invalid_patterns(api: Client, row: Case) -> None:
    told = api.post(DEFINITIONS, with_patterns([row]), dryRun="All").expect(422)
    assert f"must be a valid regular expression, but isn't: error parsing regexp: {row.told}" in told["message"], told


RULES = {
    r"self.matches('^\\p{Letter}+$')": ("ab", "1"),
    r"self.find('[\\p{Decimal_Number}]') != ''": ("a1", "a"),
    r"self.matches('^\\PC$')": ("a", "\u0378"),
}


@pytest.mark.parametrize("rule", RULES)
def test_cel_functions_support_named_character_classes(api: Client, rule: str) -> None:
    spec = {"type": "object", "properties": {"t": {"type": "string", "maxLength": 9}}}
    spec["properties"]["t"]["x-kubernetes-validations"] = [{"rule": rule}]  # type: ignore[index]
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    made = establish(api, definition(fresh_group(), schema=schema))
    widgets = Resource(api, made["spec"]["group"], "widgets", "Widget")
    good, bad = RULES[rule]
    api.post(widgets.path(), widgets.make("a", t=good), dryRun="All").expect(201)
    api.post(widgets.path(), widgets.make("a", t=bad), dryRun="All").expect(422)
