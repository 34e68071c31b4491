"""The plug-ins of a server in upstream's order, by the names that flags give them (ADM-001)."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from apiext.admission.chain import Judge, Mutator, Plugin
from apiext.admission.configured import (
    BINDINGS,
    MUTATING,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    POLICIES,
    VALIDATING,
    Live,
)
from apiext.admission.late import LateJudge, LateMutator
from apiext.admission.lifecycle import NamespaceLifecycle
from apiext.admission.params import Params
from apiext.admission.pod_security import PodSecurity
from apiext.admission.surroundings import Poster, Surroundings
from apiext.catalog.served import LiveCatalog
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore


def plugins(
    catalog: LiveCatalog,
    store: CachedStore,
    around: Surroundings,
    admits: Callable[[str], bool],
    posters: Callable[[str], Poster],
) -> list[Plugin]:
    """Return the enabled plug-ins, for whose names ``admits`` is true; they read configurations from the store's cache.

    ``posters`` returns the webhook client of a plug-in. Webhooks, policies and CEL are imported when the first of them
    is configured.
    """

    @cache
    def live(resource: GroupResource, module: str, function: str) -> Live[Any]:
        """Return what a function of apiext.admission compiles of each object."""

        def compile(view: View) -> Sequence[Any]:
            compiled: Sequence[Any] = getattr(import_module(f"apiext.admission.{module}"), function)(view)
            return compiled

        served = catalog.current.lookup(resource.group, "v1", resource.resource)
        if served is None:  # turned off by --runtime-config: nothing is configured, so nothing is called
            return Live(None, lambda raw, revision: {}, compile)
        return Live(store.collection(resource), served.codec.decode, compile)

    def mutating_policies(name: str) -> Plugin:
        policies = live(MUTATING_POLICIES, "mutations", "compile_policy")
        bindings = live(MUTATING_BINDINGS, "policy", "compile_binding")

        def make() -> Mutator:
            from apiext.admission.mutating_policies import MutatingPolicies

            return MutatingPolicies(policies, bindings, params, around)

        return LateMutator(name, policies, make)

    def validating_policies(name: str) -> Plugin:
        policies = live(POLICIES, "validations", "compile_policy")
        bindings = live(BINDINGS, "policy", "compile_binding")

        def make() -> Judge:
            from apiext.admission.validating_policies import ValidatingPolicies

            return ValidatingPolicies(policies, bindings, params, around)

        return LateJudge(name, policies, make)

    def mutating_webhooks(name: str) -> Plugin:
        hooks = live(MUTATING, "hooks", "compile_hooks")

        def make() -> Mutator:
            from apiext.admission.webhooks import MutatingWebhooks

            return MutatingWebhooks(hooks, replace(around, poster=posters(name)))

        return LateMutator(name, hooks, make)

    def validating_webhooks(name: str) -> Plugin:
        hooks = live(VALIDATING, "hooks", "compile_hooks")

        def make() -> Judge:
            from apiext.admission.webhooks import ValidatingWebhooks

            return ValidatingWebhooks(hooks, replace(around, poster=posters(name)))

        return LateJudge(name, hooks, make)

    def owner_permissions(name: str) -> Plugin:
        from apiext.admission.owner_permissions import OwnerPermissions

        return OwnerPermissions(catalog, around.authorize)

    params = Params(catalog, store, around)
    made: Mapping[str, Callable[[str], Plugin]] = {
        NamespaceLifecycle.name: lambda _: NamespaceLifecycle(around.find_namespace),
        PodSecurity.name: lambda _: PodSecurity(),
        "OwnerReferencesPermissionEnforcement": owner_permissions,
        "MutatingAdmissionPolicy": mutating_policies,
        "MutatingAdmissionWebhook": mutating_webhooks,
        "ValidatingAdmissionPolicy": validating_policies,
        "ValidatingAdmissionWebhook": validating_webhooks,
    }
    return [make(name) for name, make in made.items() if admits(name)]
