"""Internal effects of mutating policies: budgets, rounds, threads, managed fields."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Any, cast

import pytest

from apiext import limits as server_limits
from apiext.admission import limits as admission_limits
from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.admission.configured import MUTATING_BINDINGS, MUTATING_POLICIES, Live
from apiext.admission.metrics import Metrics
from apiext.admission.mutating_policies import MutatingPolicies
from apiext.admission.mutations import Mutation, compile_policy
from apiext.admission.params import Params
from apiext.admission.plugin_services import PluginServices
from apiext.admission.policy import compile_binding
from apiext.auth.user import User
from apiext.conformance.support.admission import apply, json_patch
from apiext.documents import json_patch as patches
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.schema.budget import DEFAULTS
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from tests.support.strain import turns_beside
from tests.unit.catalog import samples

pytestmark = pytest.mark.rows("ADM-020")

RULE = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets", "widgets/*"]}
COLOR = apply('Object{spec: Object.spec{color: "blue"}}')
LONG = "[1, 2, 3, 4, 5].all(a, [1, 2, 3, 4, 5].all(b, a + b > 0))"
OVER = "validation failed due to running out of cost budget, no further validation rules will be run"
DENIED = "policy 'p' with binding 'p' denied request: "


def collection(resource: GroupResource) -> Collection:
    found = Collection(resource, False, "/r/", None, Progress(lambda revision, times: None), Pump())
    found.load([], {}, 1)
    found.announce([])
    return found


class Configured:
    """A chain with collections of policies and bindings, which tests fill directly."""

    def __init__(self, *versions: dict[str, Any]) -> None:
        self.revision = 1
        self.namespaces: list[str] = []
        self.definition = samples.resource(*versions)
        self.collections = {resource: collection(resource) for resource in (MUTATING_POLICIES, MUTATING_BINDINGS)}
        services = PluginServices(self._namespace, cast(Any, None), Metrics(), self._convert)
        policies = Live(self.collections[MUTATING_POLICIES], lambda raw, _: json.loads(raw), compile_policy)
        bindings = Live(self.collections[MUTATING_BINDINGS], lambda raw, _: json.loads(raw), compile_binding)
        self.plugin = MutatingPolicies(policies, bindings, Params(cast(Any, None), cast(Any, None), services), services)
        self.chain = Chain([self.plugin])

    async def _namespace(self, name: str) -> View | None:
        self.namespaces.append(name)
        return {"metadata": {"name": name, "resourceVersion": "1"}} if name == "n" else None

    async def _convert(self, definition: Any, document: View, api_version: str) -> Document:
        if document["spec"].get("color") == "stuck":
            raise status.internal("no way")
        return {**document, "apiVersion": api_version}

    def store(self, name: str, *mutations: dict[str, Any], **spec: Any) -> None:
        spec = {"matchConstraints": {"resourceRules": [RULE]}, "mutations": list(mutations), **spec}
        self._put(MUTATING_POLICIES, name, spec)
        self.bind(name, name)

    def bind(self, name: str, policy: str) -> None:
        self._put(MUTATING_BINDINGS, name, {"policyName": policy})

    def _put(self, resource: GroupResource, name: str, spec: dict[str, Any]) -> None:
        self.revision += 1
        value = json.dumps({"metadata": {"name": name}, "spec": spec}).encode()
        self.collections[resource].apply(name, self.revision, value)

    def attributes(self, new: View | None, subresource: str = "", **more: Any) -> Attributes:
        served, known = self.definition.versions["v1"], {"definition": self.definition, **more}
        return Attributes(
            known.pop("operation", "CREATE"), served.names.group_resource, "v1", served.names.group_kind, subresource,
            known.pop("namespace", "n"), "x", User("alice"), False, new, served=served, **known,
        )  # fmt: skip

    async def create(self, **more: Any) -> Document:
        """Create a widget; return the mutated object."""
        new, _ = self.definition.versions["v1"].model.normalize(samples.widget(spec=more.pop("spec", {})))
        return await self.chain.mutate(self.attributes(new, **more), new)


@pytest.fixture
def configured() -> Configured:
    return Configured()


async def test_plugin_applies_only_with_a_stored_policy(configured: Configured) -> None:
    new = samples.widget()
    assert await configured.chain.mutate(configured.attributes(new), new) is new
    applies = partial(configured.chain.applies, "CREATE", GroupResource("example.com", "widgets"))
    assert not applies()
    configured.store("p", COLOR)
    assert applies()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_matching_many_bindings_yields_to_the_event_loop(
    configured: Configured, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)
    configured.store("p", COLOR)
    for number in range(300):
        if elsewhere:
            configured.store(f"p{number}", COLOR, matchConstraints={"resourceRules": [{**RULE, "resources": ["no"]}]})
        else:
            configured.bind(f"b{number}", "p")
    _, turns = await turns_beside(configured.create())
    assert turns > 300
    _, turns = await turns_beside(configured.create())
    assert (turns > 300) is not elsewhere, "policies for other resources are not looked at again"


async def test_policy_for_another_resource_does_not_apply(configured: Configured) -> None:
    """The chain does not even read the namespace.

    Upstream reads it only before it evaluates a policy.
    """
    configured.store("p", COLOR, matchConstraints={"resourceRules": [{**RULE, "resources": ["others"]}]})
    new = samples.widget()
    made = configured.attributes(new)
    assert await configured.chain.mutate(made, new) is new
    assert (configured.namespaces, made.rounds) == ([], None)


async def test_delete_skips_mutating_policies(configured: Configured) -> None:
    configured.store("p", COLOR)
    made = configured.attributes(None, operation="DELETE", old=samples.widget())
    await configured.chain.review_delete(made)
    assert made.rounds is None


async def test_mutation_does_not_modify_the_input_object(configured: Configured) -> None:
    """The managed fields of a write are computed from the client's body, before mutations."""
    configured.store("p", apply("Object{spec: Object.spec{owner: Object.spec.owner{uid: 'u'}}}"))
    new, _ = configured.definition.versions["v1"].model.normalize(samples.widget(spec={"owner": {}}))
    before = json.dumps(new)
    found = await configured.chain.mutate(configured.attributes(new), new)
    assert found["spec"] == {"color": "red", "owner": {"uid": "u"}}
    assert json.dumps(new) == before


async def test_missing_namespace_is_404_despite_ignore_policy(configured: Configured) -> None:
    """upstream: a missing namespace is a 404 for every failure policy"""
    configured.store("p", COLOR, failurePolicy="Ignore")
    with pytest.raises(StatusError) as caught:
        await configured.create(namespace="gone")
    assert (caught.value.code, caught.value.message) == (404, 'namespaces "gone" not found')


@pytest.mark.parametrize(("units", "ignored", "found"), [(10_000, False, "blue"), (20, False, None), (20, True, "red")])
async def test_mutations_over_the_cost_budget_fail(
    configured: Configured, units: int, ignored: bool, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_EXPRESSIONS", units)
    text = f'Object{{spec: Object.spec{{color: {LONG} ? "blue" : "green"}}}}'
    configured.store("p", apply(text), apply(text), failurePolicy="Ignore" if ignored else "Fail")
    if found is not None:
        assert (await configured.create())["spec"]["color"] == found
        return
    with pytest.raises(StatusError) as caught:
        await configured.create()
    error = caught.value
    assert (error.code, error.reason, error.message) == (403, "Invalid", f"{DENIED}{OVER}")
    assert error.details is not None
    assert error.details["causes"] == [{"message": f"{DENIED}{OVER}"}] * 2


async def test_match_condition_error_names_the_expression(configured: Configured) -> None:
    conditions = [{"name": "c", "expression": "object.spec.nope == 1"}]
    configured.store("p", COLOR, matchConditions=conditions)
    with pytest.raises(StatusError) as caught:
        await configured.create()
    fault = "expression 'object.spec.nope == 1' resulted in error: no such key: nope"
    assert (caught.value.reason, caught.value.message) == ("Invalid", DENIED + fault)


@pytest.mark.parametrize(
    "mutation",
    [
        apply("Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"),
        json_patch('[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 1}]'),
    ],
    ids=["apply", "patch"],
)
async def test_scales_can_be_mutated(configured: Configured, mutation: dict[str, Any]) -> None:
    """upstream: denies each write of a scale.

    Scales have no merge type, and patched scales cannot be converted.
    """
    configured.store("p", mutation)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}, "spec": {"replicas": 2}}
    made = configured.attributes(scale, "scale", operation="UPDATE", old=scale)
    found = await configured.chain.mutate(made, scale)
    assert (found["kind"], found["spec"]) == ("Scale", {"replicas": 3})


async def test_patches_in_concatenated_lists_are_applied(configured: Configured) -> None:
    add = '[JSONPatch{{op: "add", path: "/spec/{}", value: {}}}]'
    configured.store("p", json_patch(f"{add.format('replicas', 1)} + {add.format('color', chr(39) + 'b' + chr(39))}"))
    assert (await configured.create())["spec"] == {"color": "b", "replicas": 1}


@pytest.mark.parametrize(
    ("mutation", "text"),
    [
        (apply("Object{spec: Object.spec{free: Object.spec.free{x: object.spec.free}}}"), "error applying patch"),
        (json_patch('[JSONPatch{op: "copy", from: "/spec", path: "/spec/free/x"}]'), "JSON Patch"),
    ],
    ids=["apply", "patch"],
)
async def test_mutation_over_the_max_depth_is_denied(
    configured: Configured, mutation: dict[str, Any], text: str
) -> None:
    configured.store("p", mutation)

    async def deeper(free: dict[str, Any], times: int) -> None:
        for _ in range(times):
            free = (await configured.create(spec={"free": free}))["spec"]["free"]

    free: dict[str, Any] = {}
    for _ in range(200):
        free = {"x": free}
    await deeper(free, 10)
    with pytest.raises(StatusError) as caught:
        await deeper(free, 60)
    assert caught.value.message == f"{DENIED}{text}: the patched document exceeds max depth"


async def test_defaults_over_the_size_limit_fail_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"type": "object", "properties": {"a": {"type": "string", "default": "x" * 100}}}
    spec = {"type": "object", "properties": {"items": {"type": "array", "items": item}}}
    configured = Configured(samples.version("v1", {"type": "object", "properties": {"spec": spec}}))
    configured.store("p", json_patch('[JSONPatch{op: "add", path: "/spec/items", value: [{}, {}, {}]}]'))
    assert len((await configured.create())["spec"]["items"]) == 3
    monkeypatch.setattr(DEFAULTS, "full", 250)
    with pytest.raises(StatusError, match="the defaults of the schema would add more than") as caught:
        await configured.create()
    assert caught.value.code == 500


async def test_apply_fails_after_a_patch_of_kind_or_api_version(configured: Configured) -> None:
    configured.store("p", json_patch('[JSONPatch{op: "remove", path: "/apiVersion"}]'), COLOR)
    with pytest.raises(StatusError) as caught:
        await configured.create()
    assert "/, Kind=Widget is unstructured and is not suitable for converting to" in caught.value.message
    configured.store("p", json_patch('[JSONPatch{op: "replace", path: "/kind", value: "Other"}]'), COLOR)
    with pytest.raises(StatusError) as caught:
        await configured.create()
    text = "failed to convert patch object to typed object: no corresponding type for example.com/v1, Kind=Other"
    assert caught.value.message == f"{DENIED}error applying patch: {text}"


@pytest.mark.parametrize(("text", "shown"), [("1.0 / 0.0", "+Inf"), ("-1.0 / 0.0", "-Inf"), ("0.0 / 0.0", "NaN")])
async def test_mutation_to_infinity_or_nan_is_an_error(configured: Configured, text: str, shown: str) -> None:
    # upstream: this error is reported only when the object is stored
    configured.store("p", apply(f"Object{{spec: Object.spec{{free: Object.spec.free{{a: {text}}}}}}}"),
                     failurePolicy="Ignore")  # fmt: skip
    with pytest.raises(StatusError) as caught:
        await configured.create()
    assert (caught.value.code, caught.value.message) == (500, f"json: unsupported value: {shown}")


@pytest.mark.rows("ADM-015")
@pytest.mark.parametrize(
    ("mutation", "second"),
    [(apply("Object{}"), True), (json_patch('[JSONPatch{op: "test", path: "/spec/color", value: "x"}]'), True),
     (apply("Object{spec: Object.spec{color: object.nope}}"), False)],
    ids=["nothing", "failed test operation", "evaluation error"],
)  # fmt: skip
async def test_mutation_requests_a_second_round(configured: Configured, mutation: dict[str, Any], second: bool) -> None:
    # upstream: a patch without effect also counts as a mutation
    configured.store("p", mutation, failurePolicy="Ignore")
    new, _ = configured.definition.versions["v1"].model.normalize(samples.widget(spec={}))
    made = configured.attributes(new)
    assert await configured.chain.mutate(made, new) is new
    assert made.rounds is not None
    assert made.rounds.second is second


async def test_large_objects_are_mutated_in_a_thread(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def apply_noted(mutation: Mutation, *arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return apply_mutation(mutation, *arguments)

    apply_mutation = Mutation.apply
    monkeypatch.setattr(Mutation, "apply", apply_noted)
    configured.store("p", COLOR)
    for size in (100, 1 << 20):
        assert (await configured.create(size=size))["spec"]["color"] == "blue"
    assert threads == [True, False]


@pytest.mark.parametrize(
    ("color", "large"),
    [("'blue'", False), ("'aaaaaaaaaa'" + ".replace('a', 'aaaaaaaaaa')" * 4, True)],
    ids=["small", "large"],
)
async def test_mutation_updates_the_size_of_the_write(configured: Configured, color: str, large: bool) -> None:
    configured.store("p", apply(f"Object{{spec: Object.spec{{color: {color}}}}}"))
    new, _ = configured.definition.versions["v1"].model.normalize(samples.widget(spec={}))
    made = configured.attributes(new, size=200)
    assert len((await configured.chain.mutate(made, new))["spec"]["color"]) == (100_000 if large else 4)
    assert (made.size >= server_limits.WORK_INLINE) is large
    assert made.size >= 200


@pytest.mark.parametrize(
    ("mutations", "letters", "fits"), [(2, 2_000_000, True), (3, 2_000_000, False), (1, 7_000_000, False)]
)
async def test_mutated_object_size_is_limited(configured: Configured, mutations: int, letters: int, fits: bool) -> None:
    names = [f"/metadata/annotations/x{number}" for number in range(mutations)]
    texts = (f'[JSONPatch{{op: "add", path: "{name}", value: object.spec.color}}]' for name in names)
    configured.store("p", *map(json_patch, texts))
    new, _ = configured.definition.versions["v1"].model.normalize(samples.widget(spec={"color": "x" * letters}))
    new["metadata"]["annotations"] = {}
    made = configured.attributes(new, size=letters)
    if fits:
        assert len((await configured.chain.mutate(made, new))["metadata"]["annotations"]) == mutations
        return
    with pytest.raises(StatusError) as caught:
        await configured.chain.mutate(made, new)
    assert caught.value.code == 403
    assert f"the mutation makes more than {admission_limits.MAX_MUTATED} bytes of JSON" in caught.value.message


@pytest.mark.parametrize(("operations", "apart"), [(10, False), (1000, True)])
async def test_patches_of_many_operations_are_made_in_a_thread(
    configured: Configured, operations: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(document: View, made: list[Any]) -> Document:
        threads.append(threading.current_thread())
        return applied(document, made)

    applied = patches.apply
    monkeypatch.setattr(patches, "apply", noted)
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    one = 'JSONPatch{op: "add", path: "/spec/replicas", value: 1}'
    configured.store("p", json_patch(f"({' + '.join([ten] * (operations // 10))}).map(i, {one})"))
    assert (await configured.create())["spec"]["replicas"] == 1
    assert [thread is not threading.main_thread() for thread in threads] == [apart]


class TestVersions:
    """Policies for another version than that of the write."""

    @pytest.fixture
    def both(self) -> Configured:
        return Configured(
            samples.version("v1", samples.CLOSED), samples.version("v2", samples.CLOSED), samples.version("v3", {})
        )

    async def test_policy_sees_mutations_of_earlier_policies(self, both: Configured) -> None:
        """upstream: each policy gets the original object in its version.

        So the changes of the first policy are lost.
        """
        late = {"resourceRules": [{**RULE, "apiVersions": ["v2"]}], "matchPolicy": "Equivalent"}
        both.store("a", apply("Object{spec: Object.spec{color: object.spec.color + 'a'}}"))
        both.store("b", apply("Object{spec: Object.spec{color: object.spec.color + object.apiVersion}}"),
                   matchConstraints=late)  # fmt: skip
        found = await both.create()
        assert (found["apiVersion"], found["spec"]["color"]) == ("example.com/v1", "redaexample.com/v2")

    async def test_failed_conversion_before_mutation_is_denied(self, both: Configured) -> None:
        late = {"resourceRules": [{**RULE, "apiVersions": ["v2"]}], "matchPolicy": "Equivalent"}
        both.store("p", COLOR, matchConstraints=late)
        with pytest.raises(StatusError) as caught:
            await both.create(spec={"color": "stuck"})
        text = "failed to configure policy: Internal error occurred: no way"
        assert (caught.value.reason, caught.value.message) == ("Forbidden", f'policy "p" denied request: {text}')

    async def test_failed_conversion_after_mutation_is_an_error(self, both: Configured) -> None:
        late = {"resourceRules": [{**RULE, "apiVersions": ["v2"]}], "matchPolicy": "Equivalent"}
        both.store("p", apply("Object{spec: Object.spec{color: 'stuck'}}"), matchConstraints=late)
        with pytest.raises(StatusError) as caught:
            await both.create()
        assert caught.value.message == "Internal error occurred: failed to convert object: no way"
