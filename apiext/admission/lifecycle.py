"""NamespaceLifecycle: deny creates in missing or terminating namespaces.

The plug-in also denies deletions of system namespaces. See NSP-003, NSP-004.
"""

from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.plugin_services import FindNamespace
from apiext.documents.document import Document
from apiext.meta import status
from apiext.meta.names import GroupResource

ACCESS_REVIEWS = GroupResource("authorization.k8s.io", "localsubjectaccessreviews")
IMMORTAL = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle:
    """The plug-in NamespaceLifecycle."""

    __slots__ = ("_find",)
    name = "NamespaceLifecycle"

    def __init__(self, find: FindNamespace) -> None:
        self._find = find

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether the operation is a create or the deletion of a namespace.

        The create of a local access review does not count.
        """
        # upstream: access reviews are allowed in all namespaces, so that they do not reveal whether a namespace exists
        return resource != ACCESS_REVIEWS if operation == "CREATE" else resource == NAMESPACES and operation == "DELETE"

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Deny creates in missing or terminating namespaces, and the deletion of system namespaces.

        As in upstream, the plug-in runs only in the mutating phase, before the other plug-ins. The transaction of a
        create fails if the namespace has another revision than here (``Traces.premises``).
        """
        if attributes.operation == "CREATE":
            if attributes.namespace:
                await self._must_be_open(attributes)
        elif attributes.name in IMMORTAL:
            raise status.forbidden(NAMESPACES, attributes.name, "this namespace may not be deleted")
        return new

    async def _must_be_open(self, attributes: Attributes, newest: bool = False) -> None:
        name = attributes.namespace or ""
        namespace = await self._find(name, newest)
        if namespace is None:
            raise status.not_found(NAMESPACES, name)
        if (namespace.get("status") or {}).get("phase") != "Terminating":
            attributes.traces.premises[name] = int(namespace["metadata"]["resourceVersion"])
            return
        if not newest:  # the cache may be stale: another server may have recreated the namespace
            await self._must_be_open(attributes, newest=True)
            return
        text = f"unable to create new content in namespace {name} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        raise status.forbidden(attributes.resource, attributes.name_for_denial, text, [cause])
