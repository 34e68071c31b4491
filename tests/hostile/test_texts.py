"""Large strings that policies concatenate, or that definitions match with slow patterns."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import definition
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.hostile.harness import Victim, at_once, refusal

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
MUTATING_BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
MAPS = "/api/v1/namespaces/default/configmaps"
SLOW = "[^x]{1000}y"  # no automaton fits into memory: 2 ns for each byte and each of 8,000 instructions
JOINED = "object.data.map(k, object.metadata.annotations['a'] + k).all(x, x != '')"
ROWS = "object.data.map(k, bytes(object.metadata.annotations['a'])).size() > 0"


AGAIN = "object.data.map(k, object.metadata.annotations['a'])"
MUTATIONS = {
    "ApplyConfiguration": {"applyConfiguration": {"expression": f"Object{{data: Object.data{{a: {AGAIN}}}}}"}},
    "JSONPatch": {
        "jsonPatch": {"expression": f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {{'a': {AGAIN}}}}}]"}
    },
}
STEPS = 7_500  # pairs of letters; twenty slow patterns exceed the steps of an object, a tenth of the pairs does not
WIDE = 5  # patterns in a definition whose programs are too large; each takes 0.2 s of CPU


def serve(api: Client, plural: str, text: dict[str, Any]) -> str:
    """Create a definition whose spec.a is a string of this schema; return its collection path."""
    spec = {"type": "object", "properties": {"a": {"type": "string", **text}}}
    root = {"type": "object", "properties": {"spec": spec}}
    made = definition("hostile.example.com", plural, schema={"openAPIV3Schema": root})
    api.post(DEFINITIONS, made).expect(201)
    path = f"/apis/hostile.example.com/v1/namespaces/default/{plural}"
    until(lambda: api.get(path).status == 200, f"{plural} are served")
    return path


@pytest.mark.rows("ADM-006", "CEL-011")
@pytest.mark.parametrize("expression", [JOINED, ROWS], ids=["joined", "bytes"])
def test_server_survives_large_strings_in_policy_expressions(victim: Victim, expression: str) -> None:
    """The server survives large strings in policy expressions.

    One such dry run, with a string of 200,000 characters and 40,000 names, killed a server with 2 GiB within five
    seconds.
    """
    api, name = victim.api, f"texts{len(expression)}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    constraints = {"resourceRules": [rule]}
    policy = {"matchConstraints": constraints, "validations": [{"expression": expression}]}
    api.post(POLICIES, {"metadata": {"name": name}, "spec": policy}).expect(201)
    bound = {"policyName": name, "validationActions": ["Deny"]}
    api.post(BINDINGS, {"metadata": {"name": name}, "spec": bound}).expect(201)
    small = {"metadata": {"name": "m"}, "data": {"k": "v"}}  # an error, since the object has no annotations
    until(lambda: api.post(f"{MAPS}?dryRun=All", small).status == 422, "the policy counts")
    names = dict.fromkeys(map(str, range(40_000)), "")
    large = {"metadata": {"name": "m", "annotations": {"a": "a" * 200_000}}, "data": names}
    with victim.attacked():
        answers = at_once(4, lambda _: api.post(f"{MAPS}?dryRun=All", large))
    assert {refusal(answer) for answer in answers} <= {422, 429}
    api.delete(f"{BINDINGS}/{name}")
    api.delete(f"{POLICIES}/{name}")


@pytest.mark.rows("ADM-020")
@pytest.mark.parametrize("kind", MUTATIONS)
def test_server_survives_a_mutation_that_repeats_a_string(victim: Victim, kind: str) -> None:
    """The server survives a mutation that repeats a string.

    One such dry run, with a string of 200,000 characters and 40,000 names, killed a server: its JSON has eight
    gigabytes.
    """
    api, name = victim.api, f"again-{kind.lower()}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    mutation = {"patchType": kind, **MUTATIONS[kind]}
    policy = {
        "matchConstraints": {"resourceRules": [rule]}, "mutations": [mutation], "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
    }  # fmt: skip
    api.post(MUTATING, {"metadata": {"name": name}, "spec": policy}).expect(201)
    api.post(MUTATING_BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name}}).expect(201)
    small = {"metadata": {"name": "m"}, "data": {"k": "v"}}  # an error, since the object has no annotations
    until(lambda: api.post(f"{MAPS}?dryRun=All", small).status != 201, "the policy counts")
    names = dict.fromkeys(map(str, range(40_000)), "")
    large = {"metadata": {"name": "m", "annotations": {"a": "a" * 200_000}}, "data": names}
    with victim.attacked():
        answers = at_once(4, lambda _: api.post(f"{MAPS}?dryRun=All", large))
    assert {refusal(answer) for answer in answers} <= {403, 422, 429}
    assert any("more than 6291456 bytes" in answer.text for answer in answers)
    api.delete(f"{MUTATING_BINDINGS}/{name}")
    api.delete(f"{MUTATING}/{name}")
    until(lambda: api.post(f"{MAPS}?dryRun=All", small).status == 201, "the policy counts no more")


@pytest.mark.rows("VAL-001", "STR-010")
def test_slow_patterns_do_not_block_other_clients(victim: Victim) -> None:
    """Slow patterns do not block other clients.

    One such object of 1.4 MB took 15 seconds; eight objects blocked creates of another definition for a minute.
    """
    api = victim.api
    slow = serve(api, "slows", {"pattern": SLOW})
    many = serve(api, "manies", {"allOf": [{"pattern": f"{SLOW}{number}"} for number in range(20)]})
    other = serve(api, "others", {"pattern": "^[a-z]*$"})
    with victim.attacked():
        large = {"kind": "Slow", "metadata": {"name": "x"}, "spec": {"a": "ab" * 700_000}}
        assert refusal(api.post(slow, {**large, "apiVersion": "hostile.example.com/v1"})) == 422

        def write(number: int) -> int:
            if number < 8:
                pairs = STEPS // 10 if number else STEPS
                text = {"kind": "Manie", "metadata": {"name": f"m{number}"}, "spec": {"a": "ab" * pairs}}
                return refusal(api.post(many, {**text, "apiVersion": "hostile.example.com/v1"}))
            plain = {"kind": "Other", "metadata": {"name": f"o{number}"}, "spec": {"a": "a" * 20_000}}
            return api.post(other, {**plain, "apiVersion": "hostile.example.com/v1"}).status

        codes = at_once(10, write)
    assert codes == [422] * 8 + [201] * 2


@pytest.mark.rows("STR-010")
def test_large_patterns_use_bounded_memory(victim: Victim) -> None:
    """Six definitions with 20 such patterns each (31 KB) occupied 860 MB."""
    fields = {f"p{number}": {"type": "string", "pattern": r"\pL" * 400 + str(number)} for number in range(WIDE)}
    root = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}

    def create(number: int) -> int:
        made = definition("hostile.example.com", f"larges{number}", schema={"openAPIV3Schema": root})
        return refusal(victim.api.post(DEFINITIONS, made))

    with victim.attacked(stall=2.0):
        assert set(at_once(6, create)) == {422}
