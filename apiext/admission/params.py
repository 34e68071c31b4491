"""The parameters of policies: objects of any served kind that bindings reference."""

from collections.abc import Mapping
from typing import Any

from apiext.admission import limits
from apiext.admission.plugin_services import PluginServices
from apiext.catalog.converted import NeedsConversion
from apiext.catalog.served import Catalog, LiveCatalog, ServedResource, ServedVersion
from apiext.documents.document import Document, View
from apiext.meta.selectors import LabelSelector, SelectorError
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.cached_store import CachedStore
from apiext.storage.store import Entry, StoreError


class ConfigurationError(Exception):
    """The error of a policy or binding that cannot be used.

    The failurePolicy of the policy decides whether this error denies the write.
    """


class UnknownKind(ConfigurationError):
    """The error of a policy whose paramKind is not served."""


class Params:
    """Finds parameters in the cache of their resource.

    If the cache lacks a parameter that a binding names, read it from the store.
    """

    __slots__ = ("_catalog", "_services", "_store")

    def __init__(self, catalog: LiveCatalog, store: CachedStore, services: PluginServices) -> None:
        self._catalog = catalog
        self._store = store
        self._services = services

    async def find(
        self, kind: tuple[str, str] | None, ref: Mapping[str, Any] | None, namespace: str, loop_budget: LoopBudget
    ) -> list[View | None]:
        """Return the objects to which a binding refers.

        Raise ConfigurationError, or StatusError if a conversion fails. Return [None] without a reference or a ``kind``.
        As upstream, the returned objects of built-in kinds lack apiVersion, kind and managedFields, except in the
        groups in _NO_CLIENT. ``kind`` is the policy's paramKind as (apiVersion, kind). ``namespace`` is the namespace
        of the write, empty for a cluster-scoped object.
        """
        if kind is None:
            return [None]
        resource, served = self.served(kind)
        if ref is None:
            return [None]
        entries = await self._entries(resource, ref, _namespace_of_params(served, ref, namespace), loop_budget)
        if not entries and ref.get("parameterNotFoundAction") == "Deny":
            raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        # if the server skipped some parameters, it could allow a write that they deny
        if len(entries) > limits.ADMISSION_PARAMS:
            raise ConfigurationError(f"more than {limits.ADMISSION_PARAMS} params found for policy binding")
        found: list[View | None] = []
        for entry in entries:
            found.append(await self._document(resource, served, entry))
            await loop_budget.pause()
        return found

    def served(self, kind: tuple[str, str]) -> tuple[ServedResource, ServedVersion]:
        """Return the resource and version of a kind, given as (apiVersion, kind).

        Raises UnknownKind.
        """
        found: dict[tuple[str, str], tuple[ServedResource, ServedVersion]] = self._catalog.current.compute_once(
            "resources by apiVersion and kind", _by_kind
        )
        if kind not in found:
            group, slash, version = kind[0].partition("/")
            given = f"{group}/{version}" if slash else f"/{group}"
            raise UnknownKind(f"failed to find resource referenced by paramKind: '{given}, Kind={kind[1]}'")
        return found[kind]

    async def _entries(
        self, resource: ServedResource, ref: Mapping[str, Any], namespace: str | None, loop_budget: LoopBudget
    ) -> list[Entry]:
        collection = self._store.collection(resource.stored_resource)
        if collection is None:
            return []
        await collection.wait_ready()
        try:
            if self._services.workers:  # another worker may have written the object
                await self._store.fresh(collection)
            if name := ref.get("name"):
                one = collection.state.get(namespace or "", name) or await self._store.current(
                    collection, namespace or "", name
                )
                return [one] if one is not None else []
            selector = LabelSelector.from_document(ref.get("selector") or {})
            found = []
            for entry in collection.state.entries(namespace):
                await loop_budget.pause()
                if selector.matches(entry.labels):
                    found.append(entry)
            return found
        except (StoreError, SelectorError) as error:
            raise ConfigurationError(str(error)) from error

    async def _document(self, resource: ServedResource, served: ServedVersion, entry: Entry) -> View:
        try:
            found = served.codec.decode(entry.raw, entry.revision)
        except NeedsConversion as need:
            return await self._services.convert(resource, need.document, need.api_version)
        return (
            without_type_and_managers(found) if served.model.typed and served.names.group not in _NO_CLIENT else found
        )


_NO_CLIENT = frozenset(("apiextensions.k8s.io", "apiregistration.k8s.io"))
"""Groups without Go types in upstream's client-go: upstream decodes their objects as untyped data."""


def without_type_and_managers(document: View) -> Document:
    """Return an object without apiVersion, kind and managedFields.

    In upstream, the Go objects of built-in kinds lack these fields.
    """
    found = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    metadata = document.get("metadata") or {}
    return {**found, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def _by_kind(catalog: Catalog) -> dict[tuple[str, str], tuple[ServedResource, ServedVersion]]:
    return {
        (served.names.api_version, served.names.kind): (resource, served)
        for resource in catalog.resources.values()
        for served in resource.versions.values()
    }


def _namespace_of_params(served: ServedVersion, ref: Mapping[str, Any], namespace: str) -> str | None:
    """Return the namespace of the parameters, None for a cluster-scoped kind.

    Raise ConfigurationError.
    """
    given = ref.get("namespace") or ""
    if not served.names.namespaced:
        if given:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return None
    if not given and not namespace:
        raise ConfigurationError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return given or namespace
