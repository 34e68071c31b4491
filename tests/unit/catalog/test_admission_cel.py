"""Environments of admission expressions: types and results of mutations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from apiext.catalog.admission_cel import APPLY, BOOL, PATCHES, compiled, environment
from apiext.cel import types
from apiext.cel.environment import Environment, Program
from apiext.cel.objects import Constructed, json_of
from apiext.cel.types import Type

pytestmark = pytest.mark.rows("ADM-006", "ADM-020")
VARIABLES = {"who": types.STRING, "labels": types.map_of(types.STRING, types.STRING)}
MUTATIONS = environment(params=True, variables=VARIABLES, patches=True)
REFUSED = [
    ("Object{}", PATCHES, "must evaluate to list(JSONPatch) but got Object"),
    ("JSONPatch{op: 'add'}", PATCHES, "must evaluate to list(JSONPatch) but got JSONPatch"),
    ("[Object{}]", PATCHES, "must evaluate to list(JSONPatch) but got list(Object)"),
    ("[]", PATCHES, "must evaluate to list(JSONPatch) but got list(dyn)"),
    ("[JSONPatch{}]", APPLY, "must evaluate to Object but got list(JSONPatch)"),
    ("Object.spec{}", APPLY, "must evaluate to Object but got Object.spec"),
    ("{'spec': {}}", APPLY, "must evaluate to Object but got map(string, map(dyn, dyn))"),
    ("object", APPLY, "must evaluate to Object but got dyn"),
    ("Object{}", BOOL, "must evaluate to bool but got Object"),
    # the type is checked before the expression is planned
    ("type(1) == timestamp", APPLY, "must evaluate to Object but got bool"),
    ("Object", APPLY, "must evaluate to Object but got type(Object)"),
    ("Object == Object", BOOL, "program instantiation failed: reference to undefined type: Object"),
]


@pytest.mark.parametrize(("text", "wanted", "told"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_mutation_with_wrong_result_type_is_refused(text: str, wanted: Sequence[Type], told: str) -> None:
    assert compiled(text, MUTATIONS, wanted) == told


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Object{metadata: Object.metadata{labels: variables.labels, name: variables.who}}", APPLY),
        ("has(object.spec) ? Object{} : Object{spec: params.spec}", APPLY),
        ("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey(variables.who), value: '1'}]", PATCHES),
        ("request.userInfo.groups.map(g, JSONPatch{op: 'test', path: g})", PATCHES),
        ("true ? [] : [JSONPatch{}]", PATCHES),
    ],
)
def test_mutations_compile(text: str, wanted: Sequence[Type]) -> None:
    assert isinstance(compiled(text, MUTATIONS, wanted), Program)


@pytest.mark.parametrize(
    "env", [environment(), environment(params=True, variables=VARIABLES), environment(patches=True)]
)
def test_object_types_are_declared_in_mutations_only(env: Environment) -> None:
    """Variables and matchConditions are compiled without patches.

    Environments are not shared.
    """
    known = env is environment(patches=True)
    for text, wanted in (("Object{}", APPLY), ("[JSONPatch{}]", PATCHES), ("jsonpatch.escapeKey('a')", ())):
        found = compiled(text, env, wanted)
        assert isinstance(found, Program) is known
        assert known or "compilation failed: ERROR: <input>:1:" in str(found)


def test_patch_may_use_variables() -> None:
    """A patch may use composed variables."""
    text = "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey(variables.who), value: variables.labels}]"
    program = compiled(text, environment(params=True, variables=VARIABLES, patches=True), PATCHES)
    assert isinstance(program, Program)
    found = program.evaluate({"variables.who": "a/b~c", "variables.labels": "x"})
    assert found.error is None
    patch = found.value[0]
    assert isinstance(patch, Constructed)
    assert patch.fields == {"op": "add", "path": "/a~1b~0c", "from": "", "value": "x"}
    assert json_of(patch.fields["value"]) == "x"
