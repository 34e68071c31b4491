"""The kinds and schemas for which the types of a policy are checked."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.admission import limits
from apiext.admission.type_checks import Kind, kinds_of, resolved, warnings_of

TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"color": TEXT, "size": {"type": "integer"}}}},
}
WIDGETS = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}

pytestmark = pytest.mark.rows("ADM-020")


def named(group: str, version: str, resource: str) -> list[Kind]:
    return [Kind(group, version, resource.capitalize())] if resource.startswith("w") else []


def test_type_check_kinds_come_from_resource_rules() -> None:
    rules = [
        {"apiGroups": ["b", "a"], "apiVersions": ["v2", "v1"], "resources": ["w2", "w1", "w1/status", "unknown"]},
        {"apiGroups": ["c", "*"], "apiVersions": ["v1"], "resources": ["w1"]},
        {"apiGroups": ["c"], "apiVersions": ["v*"], "resources": ["w1"]},
        {"apiGroups": ["c"], "apiVersions": ["v1"], "resources": ["*"]},
    ]
    found = kinds_of({"matchConstraints": {"resourceRules": rules}}, named)
    assert found == [Kind(group, version, kind) for group in "ab" for version in ("v1", "v2") for kind in ("W1", "W2")]
    assert kinds_of({}, named) == []


def test_kind_lookups_of_a_policy_are_limited() -> None:
    names = [str(number) for number in range(1_000)]
    asked: list[str] = []

    def named(group: str, version: str, resource: str) -> list[Kind]:
        asked.append(resource)
        return []

    rule = {"apiGroups": names, "apiVersions": names, "resources": names}
    assert kinds_of({"matchConstraints": {"resourceRules": [rule, rule]}}, named) == []
    assert len(asked) == limits.ADMISSION_TYPES


def test_type_check_covers_at_most_ten_kinds() -> None:
    # upstream: all further rules are ignored
    many = {"apiGroups": ["a"], "apiVersions": ["v1"], "resources": [f"w{number:02}" for number in range(12)]}
    found = kinds_of({"matchConstraints": {"resourceRules": [many, {**many, "apiGroups": ["b"]}]}}, named)
    assert [kind.kind for kind in found] == [f"W{number:02}" for number in range(10)]


def test_schema_references_are_resolved_inline() -> None:
    schemas = {
        "Tree": {
            "type": "object",
            "properties": {
                "left": {"$ref": "#/components/schemas/Tree"},
                "leaf": {"allOf": [{"$ref": "#/components/schemas/Leaf"}], "description": "a leaf"},
                "all": {"type": "array", "items": {"$ref": "#/components/schemas/Leaf"}},
                "map": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Leaf"}},
                "lost": {"$ref": "#/components/schemas/Lost"},
            },
        },
        "Leaf": TEXT,
    }
    found = resolved("Tree", schemas)
    assert found is not None
    assert found["properties"] == {
        "left": {"type": "object"},
        "leaf": TEXT,
        "all": {"type": "array", "items": TEXT},
        "map": {"type": "object", "additionalProperties": TEXT},
        "lost": {},
    }
    assert resolved("Lost", schemas) is None


CASES: list[tuple[str, str]] = [  # (expression, error of k8s.io/apiserver 0.36)
    ("object.spec.size > 1", ""),
    ("object.metadata.name == 'x' && request.operation == 'CREATE' && namespaceObject.metadata.name != 'x'", ""),
    ("dyn(object).nope", ""),
    ("object.nope == 1", "<input>:1:7: undefined field 'nope'\n | object.nope == 1\n | ......^\n"),
    ("object.spec.color > 1", "<input>:1:19: found no matching overload for '_>_' applied to '(string, int)'\n"
     " | object.spec.color > 1\n | ..................^\n"),
    ("params.nope", "<input>:1:1: undeclared reference to 'params' (in container '')\n | params.nope\n | ^\n"),
    ("variables.color > 1", "<input>:1:17: found no matching overload for '_>_' applied to '(string, int)'\n"
     " | variables.color > 1\n | ................^\n"),
    ("variables.spec.nope && variables.broken", ""),
    ("authorizer.group('a').resource('b').check('c').allowed()", ""),
    ("", "<input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false',"
     " 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n"),
]  # fmt: skip
VARIABLES = [
    {"name": "color", "expression": "object.spec.color"},
    {"name": "spec", "expression": "object.spec"},
    {"name": "broken", "expression": "object.broken"},
]


@pytest.mark.parametrize(("text", "fault"), CASES)
def test_type_check_warnings(text: str, fault: str) -> None:
    spec = {
        "matchConstraints": {"resourceRules": [WIDGETS]},
        "validations": [{"expression": text}],
        "variables": VARIABLES,
    }
    found = warnings_of({"spec": spec}, named, lambda _: SCHEMA)
    warning = f"example.com/v1, Kind=Widgets: ERROR: {fault}"
    assert found == ([{"fieldRef": "spec.validations[0].expression", "warning": warning}] if fault else [])
    assert warnings_of({"spec": spec}, named, lambda _: None) == []


def test_type_check_covers_params_in_messages() -> None:
    spec = {
        "matchConstraints": {"resourceRules": [WIDGETS]},
        "paramKind": {"apiVersion": "example.com/v1", "kind": "Widgets"},
        "validations": [{"expression": "params.spec.size == 1", "messageExpression": "params.spec.nope"}],
    }
    (found,) = warnings_of({"spec": spec}, named, lambda _: SCHEMA)
    assert found["fieldRef"] == "spec.validations[0].messageExpression"
    assert "undefined field 'nope'" in found["warning"]
