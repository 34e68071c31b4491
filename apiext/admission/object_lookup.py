"""Find stored objects for plug-ins of built-in kinds.

Create the error with which such a plug-in denies a write.
"""

from apiext.admission.attributes import Attributes
from apiext.admission.plugin_services import Authorizer
from apiext.catalog.served import Codec, LiveCatalog
from apiext.documents.document import View
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection

PODS, NODES = GroupResource("", "pods"), GroupResource("", "nodes")
CLAIMS, VOLUMES = GroupResource("", "persistentvolumeclaims"), GroupResource("", "persistentvolumes")
LIMIT_RANGES, ACCOUNTS = GroupResource("", "limitranges"), GroupResource("", "serviceaccounts")
STORAGE_CLASSES = GroupResource("storage.k8s.io", "storageclasses")
ATTRIBUTES_CLASSES = GroupResource("storage.k8s.io", "volumeattributesclasses")
PRIORITY_CLASSES = GroupResource("scheduling.k8s.io", "priorityclasses")
RUNTIME_CLASSES = GroupResource("node.k8s.io", "runtimeclasses")
INGRESSES, INGRESS_CLASSES = (GroupResource("networking.k8s.io", name) for name in ("ingresses", "ingressclasses"))
REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")


class ObjectLookup:
    """Finds stored objects for plug-ins.

    ``authorize(user, question)`` returns whether a user has a permission, and the reason.
    """

    __slots__ = ("_catalog", "_store", "authorize")

    def __init__(self, catalog: LiveCatalog, store: CachedStore, authorize: Authorizer) -> None:
        self._catalog = catalog
        self._store = store
        self.authorize = authorize

    async def find(
        self, resource: GroupResource, name: str, namespace: str = "", *, cached: bool = False
    ) -> View | None:
        """Return the newest state of an object.

        Return None if the object does not exist, or if its resource is not served. If ``cached`` is true, return the
        cached state instead, if there is one.
        """
        found = self._served(resource)
        if found is None:
            return None
        collection, codec = found
        await collection.wait_ready()
        entry = collection.state.cached(namespace, name) if cached else None
        entry = entry or await self._store.current(collection, namespace, name)
        return codec.decode(entry.raw, entry.revision) if entry is not None else None

    async def every(self, resource: GroupResource, namespace: str | None = None) -> list[View]:
        """Return the cached objects of a namespace, or of all if ``namespace`` is None.

        The list is empty if the resource is not served.
        """
        served = self._served(resource)
        if served is None:
            return []
        collection, codec = served
        await collection.wait_ready()
        loop_budget, found = LoopBudget(), list[View]()
        for entry in collection.state.entries(namespace):
            found.append(codec.decode(entry.raw, entry.revision))
            await loop_budget.pause()
        return found

    def _served(self, resource: GroupResource) -> tuple[Collection, Codec] | None:
        served = self._catalog.current.resource(resource.group, resource.resource)
        collection = self._store.collection(resource)
        return None if served is None or collection is None else (collection, served.versions["v1"].codec)


def forbidden(attributes: Attributes, text: str) -> status.StatusError:
    """Return the 403 error with which a plug-in denies a write."""
    return status.forbidden(attributes.resource, attributes.name_for_denial, text)
