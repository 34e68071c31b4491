"""The plug-ins of a server in upstream's order, with the names that command-line flags use.

See ADM-001.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from apiext.admission.builtin_kind_plugins import BuiltinKindPlugin
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
from apiext.admission.lifecycle import NamespaceLifecycle
from apiext.admission.object_lookup import ObjectLookup
from apiext.admission.on_demand import OnDemandMutator, OnDemandValidator
from apiext.admission.params import Params
from apiext.admission.plugin_services import PluginServices, Poster
from apiext.admission.pod_security import PodSecurity
from apiext.admission.quotas import ResourceQuota
from apiext.catalog.served import LiveCatalog
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore


class _Policies(Struct, frozen=True):
    """A plug-in of policies.

    ``compiles`` is the module that compiles its policies. ``plugin`` is (module, class) of the plug-in.
    """

    base: type[OnDemandMutator] | type[OnDemandValidator]
    policies: GroupResource
    bindings: GroupResource
    compiles: str
    plugin: tuple[str, str]


class _Webhooks(Struct, frozen=True):
    """A plug-in of webhooks; ``plugin`` is (module, class) of the plug-in."""

    base: type[OnDemandMutator] | type[OnDemandValidator]
    configurations: GroupResource
    plugin: tuple[str, str]


_CONFIGURED: Mapping[str, _Policies | _Webhooks] = {
    "MutatingAdmissionPolicy": _Policies(
        OnDemandMutator, MUTATING_POLICIES, MUTATING_BINDINGS, "mutations", ("mutating_policies", "MutatingPolicies")
    ),
    "MutatingAdmissionWebhook": _Webhooks(OnDemandMutator, MUTATING, ("webhooks", "MutatingWebhooks")),
    "ValidatingAdmissionPolicy": _Policies(
        OnDemandValidator, POLICIES, BINDINGS, "validations", ("validating_policies", "ValidatingPolicies")
    ),
    "ValidatingAdmissionWebhook": _Webhooks(OnDemandValidator, VALIDATING, ("webhooks", "ValidatingWebhooks")),
}
"""Name → plug-in whose module is imported at the first write while a webhook or policy exists; in upstream's order."""


def plugins(
    catalog: LiveCatalog,
    store: CachedStore,
    services: PluginServices,
    admits: Callable[[str], bool],
    posters: Callable[[str], Poster],
) -> list[Plugin]:
    """Return the plug-ins for whose names ``admits`` is true.

    The plug-ins read configurations from the cache of the store. ``posters`` returns the webhook client for the name of
    a plug-in. The code for webhooks, policies and CEL is imported at the first write while a webhook or policy is
    configured.
    """

    @cache
    def live(resource: GroupResource, module: str, function: str) -> Live[Any]:
        """Return the compiled objects of a resource; ``function`` of ``module`` compiles one object."""

        def compile(view: View) -> Sequence[Any]:
            compiled: Sequence[Any] = _imported(module, function)(view)
            return compiled

        served = catalog.current.lookup(resource.group, "v1", resource.resource)
        if served is None:  # --runtime-config disables the resource, so it has no objects
            return Live(None, lambda raw, revision: {}, compile)
        return Live(store.collection(resource), served.codec.decode, compile)

    def configured(name: str, row: _Policies | _Webhooks) -> Plugin:
        if isinstance(row, _Policies):
            found = live(row.policies, row.compiles, "compile_policy")
            bindings = live(row.bindings, "policy", "compile_binding")
            return row.base(name, found, lambda: partial(_imported(*row.plugin), found, bindings, params, services))
        hooks, own = live(row.configurations, "hooks", "compile_hooks"), replace(services, poster=posters(name))
        return row.base(name, hooks, lambda: partial(_imported(*row.plugin), hooks, own))

    def owner_permissions(name: str) -> Plugin:
        from apiext.admission.owner_permissions import OwnerPermissions

        return OwnerPermissions(catalog, services.authorize)

    lookup = ObjectLookup(catalog, store, services.authorize)

    def builtin_kind(name: str) -> Plugin:
        return BuiltinKindPlugin(name, lookup)

    params = Params(catalog, store, services)
    made: Mapping[str, Callable[[str], Plugin]] = {
        NamespaceLifecycle.name: lambda _: NamespaceLifecycle(services.find_namespace),
        "LimitRanger": builtin_kind,
        "ServiceAccount": builtin_kind,
        "TaintNodesByCondition": builtin_kind,
        PodSecurity.name: lambda _: PodSecurity(services.find_namespace, lookup),
        "Priority": builtin_kind,
        "DefaultTolerationSeconds": builtin_kind,
        "DefaultStorageClass": builtin_kind,
        "StorageObjectInUseProtection": builtin_kind,
        "OwnerReferencesPermissionEnforcement": owner_permissions,
        "PersistentVolumeClaimResize": builtin_kind,
        "RuntimeClass": builtin_kind,
        "CertificateApproval": builtin_kind,
        "CertificateSigning": builtin_kind,
        "CertificateSubjectRestriction": builtin_kind,
        "DefaultIngressClass": builtin_kind,
        **{name: partial(configured, row=row) for name, row in _CONFIGURED.items()},
        ResourceQuota.name: lambda _: ResourceQuota(catalog, store, services.amend),
    }
    return [make(name) for name, make in made.items() if admits(name)]


def _imported(module: str, name: str) -> Any:
    """Return a function or class of a module in apiext.admission; import the module now.

    See decision 36.
    """
    return getattr(import_module(f"apiext.admission.{module}"), name)
