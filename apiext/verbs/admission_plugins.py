"""Create the admission plug-ins of a server, and the functions that they call."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from apiext.admission.attributes import NAMESPACES, Requester
from apiext.admission.chain import Chain
from apiext.admission.metrics import Metrics
from apiext.admission.plugin_services import PluginServices, Poster
from apiext.admission.plugins import plugins
from apiext.admission.versions import Convert, plain_conversion
from apiext.auth.authorization import Attributes, Authorizer
from apiext.auth.user import ACCOUNT_PREFIX, User, account_groups
from apiext.catalog.converted import Converted, NeedsConversion
from apiext.catalog.served import LiveCatalog, ServedResource
from apiext.config import STATUS_MANAGER, AdmissionConfig
from apiext.conversion.webhook import Converter
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode
from apiext.meta import limits as meta_limits
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.store import Entry
from apiext.verbs import amendments
from apiext.verbs.converting import explained
from apiext.verbs.errors import translated

if TYPE_CHECKING:  # the first use of CEL imports it (decision 36)
    from apiext.cel.library.authorization import Question


def chain(
    catalog: LiveCatalog,
    store: CachedStore,
    posters: Callable[[str], Poster],
    converter: Converter,
    authorizer: Authorizer,
    config: AdmissionConfig,
    *,
    several: bool,
) -> Chain:
    """Return the enabled plug-ins in their order.

    ``posters`` maps the name of a plug-in to the client for its webhooks. ``several`` is true if the server has several
    workers.
    """
    metrics = Metrics()
    services = PluginServices(
        Namespaces(catalog, store),
        posters(""),
        metrics,
        conversion(converter),
        lambda user, asked: _may(authorizer, user, asked),
        several,
        partial(_amend, store, catalog),
    )
    return Chain(plugins(catalog, store, services, config.admits, posters), metrics)


async def _amend(
    store: CachedStore,
    catalog: LiveCatalog,
    resource: GroupResource,
    entry: Entry,
    change: Callable[[Document], Document],
) -> Entry | None:
    """Change and store the status of an object as the server's field manager.

    See admission.plugin_services.Amend.
    """
    with translated():
        return await amendments.amend(store, catalog, resource, entry, change, STATUS_MANAGER)


class Namespaces:
    """Finds namespaces for plug-ins, and caches the decoded objects.

    See admission.plugin_services.FindNamespace.
    """

    __slots__ = ("_catalog", "_seen", "_store")

    def __init__(self, catalog: LiveCatalog, store: CachedStore) -> None:
        self._catalog = catalog
        self._store = store
        self._seen: dict[str, tuple[Entry, View]] = {}  # name → (entry, decoded namespace)

    async def __call__(self, name: str, newest: bool = False) -> View | None:
        collection = self._store.collection(NAMESPACES)
        if collection is None:
            return None
        if not collection.state.ready:
            await collection.wait_ready()
        entry = None if newest else collection.state.get("", name)
        entry = entry or await self._store.current(collection, "", name)
        return self._decoded(name, entry) if entry is not None else None

    def _decoded(self, name: str, entry: Entry) -> View | None:
        last = self._seen.get(name)
        if last is None or last[0] is not entry:
            served = self._catalog.current.lookup("", "v1", "namespaces")
            if served is None:
                return None
            if len(self._seen) >= meta_limits.NAMESPACES_SEEN:
                self._seen.clear()
            last = self._seen[name] = (entry, served.codec.decode(entry.raw, entry.revision))
        return last[1]


def conversion(converter: Converter) -> Convert:
    """Return the function that converts an object to another version.

    The function calls the conversion webhook of the definition, if there is one.
    """

    async def convert(resource: ServedResource, document: View, api_version: str) -> Document:
        if resource.definition.conversion is None:
            return await plain_conversion(resource, document, api_version)
        found: list[Document] = []

        def keep(answer: Document, metadata: bytes) -> Converted | None:
            found.append(answer)
            return None

        with explained():
            await converter.convert(resource, [NeedsConversion(encode(document), api_version, object(), keep)])
        return found[0]

    return convert


def _may(authorizer: Authorizer, user: Requester, asked: "Question") -> tuple[bool, str]:
    """Return (allowed, reason) of the authorizer for the question of an expression.

    The question is about ``user``, or about the service account that the expression names (``asked.user``).
    """
    subject = user if isinstance(user, User) else User(user.name, tuple(user.groups), user.uid)
    if asked.user:
        namespace = asked.user.removeprefix(ACCOUNT_PREFIX).partition(":")[0]
        # upstream: a service account in an expression does not have the group system:authenticated
        subject = User(asked.user, account_groups(namespace))
    if asked.path is not None:
        decision = authorizer(Attributes(subject, asked.verb, asked.path, at_path=True))
    else:
        place = (asked.resource, asked.subresource, asked.namespace, asked.name)
        decision = authorizer(Attributes(subject, asked.verb, "", asked.group, "*", *place))
    return decision.allowed, decision.reason
