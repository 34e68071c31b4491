"""The plug-ins of a server in upstream's order, by the names that flags give them (ADM-001)."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from apiext.admission.chain import Plugin
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

Late = type[LateMutator] | type[LateJudge]


def plugins(
    catalog: LiveCatalog,
    store: CachedStore,
    around: Surroundings,
    admits: Callable[[str], bool],
    posters: Callable[[str], Poster],
) -> list[Plugin]:
    """Return the plug-ins for whose names ``admits`` is true; they read configurations from the store's cache.

    ``posters`` returns the webhook client of a plug-in. Webhooks, policies and CEL are imported when the first of them
    is configured.
    """

    @cache
    def live(resource: GroupResource, module: str, function: str) -> Live[Any]:
        """Return the values that a function of apiext.admission compiles of each object."""

        def compile(view: View) -> Sequence[Any]:
            compiled: Sequence[Any] = _imported(module, function)(view)
            return compiled

        served = catalog.current.lookup(resource.group, "v1", resource.resource)
        if served is None:  # turned off by --runtime-config: nothing is configured, so nothing is called
            return Live(None, lambda raw, revision: {}, compile)
        return Live(store.collection(resource), served.codec.decode, compile)

    def policies(
        late: Late, resource: GroupResource, compiles: str, bound: GroupResource, plugin: tuple[str, str]
    ) -> Callable[[str], Plugin]:
        def named(name: str) -> Plugin:
            found, bindings = live(resource, compiles, "compile_policy"), live(bound, "policy", "compile_binding")
            return late(name, found, lambda: partial(_imported(*plugin), found, bindings, params, around))

        return named

    def webhooks(late: Late, resource: GroupResource, plugin: str) -> Callable[[str], Plugin]:
        def named(name: str) -> Plugin:
            hooks, services = live(resource, "hooks", "compile_hooks"), replace(around, poster=posters(name))
            return late(name, hooks, lambda: partial(_imported("webhooks", plugin), hooks, services))

        return named

    def owner_permissions(name: str) -> Plugin:
        from apiext.admission.owner_permissions import OwnerPermissions

        return OwnerPermissions(catalog, around.authorize)

    @cache
    def stored() -> Any:
        return _imported("records", "Stored")(catalog, store, around.authorize)

    def record(name: str) -> Plugin:
        found: Plugin = _imported("records", "RecordPlugin")(name, stored())
        return found

    params = Params(catalog, store, around)
    made: Mapping[str, Callable[[str], Plugin]] = {
        NamespaceLifecycle.name: lambda _: NamespaceLifecycle(around.find_namespace),
        "TaintNodesByCondition": record,
        PodSecurity.name: lambda _: PodSecurity(),
        "Priority": record,
        "DefaultTolerationSeconds": record,
        "DefaultStorageClass": record,
        "OwnerReferencesPermissionEnforcement": owner_permissions,
        "PersistentVolumeClaimResize": record,
        "RuntimeClass": record,
        "CertificateApproval": record,
        "CertificateSigning": record,
        "DefaultIngressClass": record,
        "MutatingAdmissionPolicy": policies(
            LateMutator, MUTATING_POLICIES, "mutations", MUTATING_BINDINGS, ("mutating_policies", "MutatingPolicies")
        ),
        "MutatingAdmissionWebhook": webhooks(LateMutator, MUTATING, "MutatingWebhooks"),
        "ValidatingAdmissionPolicy": policies(
            LateJudge, POLICIES, "validations", BINDINGS, ("validating_policies", "ValidatingPolicies")
        ),
        "ValidatingAdmissionWebhook": webhooks(LateJudge, VALIDATING, "ValidatingWebhooks"),
    }
    return [make(name) for name, make in made.items() if admits(name)]


def _imported(module: str, name: str) -> Any:
    """Return a function or class of a module of apiext.admission that is imported late (decision 36)."""
    return getattr(import_module(f"apiext.admission.{module}"), name)
