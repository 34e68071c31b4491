"""Plug-in OwnerReferencesPermissionEnforcement: a user needs permissions to set an owner.

The permissions are for the object and for the owner. Upstream: plugin/pkg/admission/gc/gc_admission.go. The plug-in
is off unless --enable-admission-plugins names it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiext.admission.attributes import Attributes
from apiext.admission.plugin_services import Authorizer
from apiext.catalog.served import Catalog, LiveCatalog, ServedVersion
from apiext.cel.library.authorization import Question
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.meta import status
from apiext.meta.names import GroupResource

_ANY_FINALIZERS = Question(verb="update", group="*", resource="*", subresource="finalizers", name="*")
_CANNOT_BLOCK = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"


class OwnerPermissions:
    """The plug-in OwnerReferencesPermissionEnforcement."""

    __slots__ = ("_authorize", "_catalog")
    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, catalog: LiveCatalog, authorize: Authorizer) -> None:
        self._catalog = catalog
        self._authorize = authorize

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether an operation can set an owner."""
        return operation in ("CREATE", "UPDATE")

    async def review(self, attributes: Attributes) -> None:
        """Raise 403 if the user lacks a permission for a changed ownerReference.

        For an update, the user must have the permission to delete the object. For each owner whose deletion the write
        newly blocks, the user must have the permission to update the owner's finalizers.
        """
        new, old = _owners(attributes.new), _owners(attributes.old)
        if same(new, old):
            return
        if attributes.operation != "CREATE":
            question = Question(
                verb="delete",
                group=attributes.resource.group,
                resource=attributes.resource.resource,
                subresource=attributes.subresource,
                namespace=attributes.namespace or "",
                name=attributes.name,
            )
            self._require(attributes, question, "cannot set an ownerRef on a resource you can't delete")
        blocking = list(_newly_blocking(new, old))
        if not blocking or self._authorize(attributes.user, _ANY_FINALIZERS)[0]:
            return
        for owner in blocking:
            for question in self._finalizers_of(owner, attributes):
                self._require(attributes, question, _CANNOT_BLOCK)

    def _require(self, attributes: Attributes, question: Question, text: str) -> None:
        allowed, reason = self._authorize(attributes.user, question)
        if not allowed:
            raise _forbidden(attributes, f"{text}: {reason}, <nil>")

    def _finalizers_of(self, owner: View, attributes: Attributes) -> Iterator[Question]:
        """Yield the questions whether the user may update the owner's finalizers.

        There is one question for each resource of the owner's kind. Raise 403 if the kind is not served.
        """
        api_version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
        group, _, version = api_version.rpartition("/")
        known = self._catalog.current.compute_once("resources of kinds", _resources_of_kinds)
        found = known.get((group, version, kind), ())
        if not found:
            raise _forbidden(
                attributes,
                f"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
                f'{api_version} Kind {kind}: no matches for kind "{kind}" in version "{api_version}"',
            )
        for served in found:
            yield Question(
                verb="update",
                group=served.names.group,
                resource=served.names.resource,
                subresource="finalizers",
                namespace=(attributes.namespace or "") if served.names.namespaced else "",
                name=owner.get("name") or "",
            )


def _resources_of_kinds(catalog: Catalog) -> Mapping[tuple[str, str, str], Sequence[ServedVersion]]:
    """Return (group, version, kind) → the served resources of the kind."""
    found: dict[tuple[str, str, str], list[ServedVersion]] = {}
    for resource in catalog.resources.values():
        for served in resource.versions.values():
            found.setdefault((served.names.group, served.names.version, served.names.kind), []).append(served)
    return found


def _forbidden(attributes: Attributes, text: str) -> status.StatusError:
    return status.forbidden(attributes.resource, attributes.name_for_denial, text)


def _owners(document: View | None) -> Sequence[Mapping[str, Any]]:
    return ((document or {}).get("metadata") or {}).get("ownerReferences") or ()


def _newly_blocking(new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the ownerReferences whose blockOwnerDeletion this write newly sets to true."""
    blocked = {owner.get("uid"): bool(owner.get("blockOwnerDeletion")) for owner in old}
    for owner in new:
        if owner.get("blockOwnerDeletion") and not blocked.get(owner.get("uid"), False):
            yield owner
