"""Plug-ins that mutate or deny objects of built-in kinds, as a table.

A row of ``ROWS`` is a plug-in (upstream: plugin/pkg/admission). Its functions receive objects in the only version of
their kind. A mutating function changes the new object in place. The first call of a function imports its module.
"""

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import NamedTuple

from apiext.admission.attributes import Attributes
from apiext.admission.object_lookup import (
    ATTRIBUTES_CLASSES,
    CLAIMS,
    INGRESSES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REQUESTS,
    VOLUMES,
    ObjectLookup,
)
from apiext.documents.document import Document
from apiext.meta.names import GroupResource

Step = Callable[[Attributes, Document, ObjectLookup], Awaitable[None]]
"""A function that changes or validates the new object of a write; raises StatusError to deny."""


class Row(NamedTuple):
    """A plug-in: the writes that it applies to, and the names of its functions.

    ``operations``, ``resources`` and ``subresources`` select the writes. ``module`` is the module in apiext.admission
    that has these functions.
    """

    operations: tuple[str, ...]
    resources: tuple[GroupResource, ...]
    mutate: str = ""
    review: str = ""
    subresources: tuple[str, ...] = ("",)
    module: str = "builtin_kind_steps"


class BuiltinKindPlugin:
    """The plug-in of a row.

    ``mutate`` and ``review`` do nothing if the row has no function for them, or lacks the subresource of the write.
    """

    __slots__ = ("_lookup", "_row", "name")

    def __init__(self, name: str, lookup: ObjectLookup) -> None:
        self.name = name
        self._row = ROWS[name]
        self._lookup = lookup

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether the row has the operation and the resource."""
        return operation in self._row.operations and resource in self._row.resources

    def follow(self, changed: Callable[[], None]) -> None:
        """Do nothing, since the results of ``applies`` never change.

        ``chain.Configurable`` requires the method.
        """

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Call the mutating function of the row on the new object."""
        row = self._row
        if row.mutate and new is not None and attributes.subresource in row.subresources:
            await self._step(row.mutate)(attributes, new, self._lookup)
        return new

    async def review(self, attributes: Attributes) -> None:
        """Call the validating function of the row on a shallow copy of the new object."""
        row, new = self._row, attributes.new
        if row.review and new is not None and attributes.subresource in row.subresources:
            await self._step(row.review)(attributes, dict(new), self._lookup)

    def _step(self, name: str) -> Step:
        found: Step = getattr(import_module(f"apiext.admission.{self._row.module}"), name)
        return found


ROWS: Mapping[str, Row] = {
    "LimitRanger": Row(
        ("CREATE", "UPDATE"), (PODS, CLAIMS), "set_defaults", "check_limits", ("", "resize"), "limit_ranges"
    ),
    "ServiceAccount": Row(
        ("CREATE", "UPDATE"), (PODS,), "set_account", "check_account", ("", "ephemeralcontainers"), "service_accounts"
    ),
    "TaintNodesByCondition": Row(("CREATE",), (NODES,), "taint_not_ready"),
    "Priority": Row(("CREATE", "UPDATE"), (PODS, PRIORITY_CLASSES), "set_priority", "check_one_default"),
    "DefaultTolerationSeconds": Row(("CREATE", "UPDATE"), (PODS,), "set_tolerations"),
    "DefaultStorageClass": Row(("CREATE",), (CLAIMS,), "set_storage_class"),
    "StorageObjectInUseProtection": Row(("CREATE",), (CLAIMS, VOLUMES, ATTRIBUTES_CLASSES), "protect"),
    "PersistentVolumeClaimResize": Row(("UPDATE",), (CLAIMS,), "", "check_growth"),
    "RuntimeClass": Row(("CREATE",), (PODS,), "set_runtime_class", "check_overhead"),
    "CertificateApproval": Row(("UPDATE",), (REQUESTS,), "", "check_approval", ("approval",)),
    "CertificateSigning": Row(("UPDATE",), (REQUESTS,), "", "check_signing", ("status",)),
    "CertificateSubjectRestriction": Row(("CREATE",), (REQUESTS,), "", "check_subject"),
    "DefaultIngressClass": Row(("CREATE",), (INGRESSES,), "set_ingress_class"),
}
"""Name of a plug-in → its row, in upstream's order."""
