"""NamespaceLifecycle: nothing is created in a namespace that is missing or going away (NSP-003, NSP-004)."""

from collections.abc import Callable, Mapping

from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.calls import FindNamespace
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.names import GroupResource

ACCESS_REVIEWS = GroupResource("authorization.k8s.io", "localsubjectaccessreviews")
IMMORTAL = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle:
    """The plug-in."""

    __slots__ = ("_find", "_known")
    name = "NamespaceLifecycle"
    idle = False

    def __init__(self, find: FindNamespace, known: Callable[[str], View | None] = lambda name: None) -> None:
        self._find = find
        self._known = known

    def spares(self, operation: str, resource: GroupResource) -> bool:
        """Tell whether a write creates nothing, and deletes no namespace."""
        return operation == "UPDATE" or (operation == "DELETE" and resource != NAMESPACES)

    def opens(self, resource: GroupResource, namespace: str | None) -> Mapping[str, int] | None:
        """Return the premises of a create in a namespace known to be open, None where ``mutate`` has to look."""
        if not namespace or resource == ACCESS_REVIEWS:
            return {}
        found = self._known(namespace)
        return _premises(namespace, found) if found is not None and _is_open(found) else None

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Refuse creates in absent or terminating namespaces, and the end of those that everything else relies on.

        upstream: before other plug-ins mutate, and never again. What it saw of a namespace is a premise of the write.
        """
        # upstream: access reviews are answered in any namespace, lest they tell whether it is there
        if attributes.operation == "CREATE" and attributes.namespace and attributes.resource != ACCESS_REVIEWS:
            await self._must_be_open(attributes)
        if attributes.operation == "DELETE" and attributes.name in IMMORTAL and attributes.resource == NAMESPACES:
            raise status.forbidden(NAMESPACES, attributes.name, "this namespace may not be deleted")
        return new

    async def _must_be_open(self, attributes: Attributes, newest: bool = False) -> None:
        name = attributes.namespace or ""
        namespace = await self._find(name, newest)
        if namespace is None:
            raise status.not_found(NAMESPACES, name)
        if _is_open(namespace):
            attributes.traces.premises.update(_premises(name, namespace))
            return
        if not newest:  # another server may have made it again
            await self._must_be_open(attributes, newest=True)
            return
        text = f"unable to create new content in namespace {name} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        raise status.forbidden(attributes.resource, attributes.told_name, text, [cause])


def _is_open(namespace: View) -> bool:
    return (namespace.get("status") or {}).get("phase") != "Terminating"


def _premises(name: str, namespace: View) -> Mapping[str, int]:
    return {name: int(namespace["metadata"]["resourceVersion"])}
