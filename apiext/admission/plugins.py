"""The plug-ins of a server in upstream's order, by the names that flags give them (ADM-001)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from apiext.admission import mutations, validations
from apiext.admission.calls import Poster, Surroundings
from apiext.admission.chain import Plugin
from apiext.admission.hooks import (
    BINDINGS,
    MUTATING,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    POLICIES,
    VALIDATING,
    Live,
    compile_hooks,
)
from apiext.admission.lifecycle import NamespaceLifecycle
from apiext.admission.mutating_policies import MutatingPolicies
from apiext.admission.owner_permissions import OwnerPermissions
from apiext.admission.params import Params
from apiext.admission.pod_security import PodSecurity
from apiext.admission.policy import compile_binding
from apiext.admission.validating_policies import ValidatingPolicies
from apiext.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from apiext.catalog.served import LiveCatalog
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore

T = TypeVar("T")


def plugins(
    catalog: LiveCatalog,
    store: CachedStore,
    around: Surroundings,
    admits: Callable[[str], bool],
    posters: Callable[[str], Poster],
) -> list[Plugin]:
    """Return the enabled plug-ins, for whose names ``admits`` is true; they read configurations from the store's cache.

    ``posters`` returns the webhook client of a plug-in.
    """

    def live(resource: GroupResource, compile: Callable[[View], Sequence[T]]) -> Live[T]:
        served = catalog.current.lookup(resource.group, "v1", resource.resource)
        if served is None:  # turned off by --runtime-config: nothing is configured, so nothing is called
            return Live(None, lambda raw, revision: {}, compile)
        return Live(store.collection(resource), served.decode, compile)

    def webhooks(plugin: type[MutatingWebhooks | ValidatingWebhooks], resource: GroupResource) -> Plugin:
        return plugin(live(resource, compile_hooks), replace(around, poster=posters(plugin.name)))

    params = Params(catalog, store, around)
    made: Mapping[str, Callable[[], Plugin]] = {
        NamespaceLifecycle.name: lambda: NamespaceLifecycle(around.find_namespace),
        PodSecurity.name: PodSecurity,
        OwnerPermissions.name: lambda: OwnerPermissions(catalog, around.authorize),
        MutatingPolicies.name: lambda: MutatingPolicies(
            live(MUTATING_POLICIES, mutations.compile_policy), live(MUTATING_BINDINGS, compile_binding), params, around
        ),
        MutatingWebhooks.name: lambda: webhooks(MutatingWebhooks, MUTATING),
        ValidatingPolicies.name: lambda: ValidatingPolicies(
            live(POLICIES, validations.compile_policy), live(BINDINGS, compile_binding), params, around
        ),
        ValidatingWebhooks.name: lambda: webhooks(ValidatingWebhooks, VALIDATING),
    }
    return [make() for name, make in made.items() if admits(name)]
