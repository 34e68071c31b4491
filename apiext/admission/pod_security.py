"""PodSecurity: validate the labels by which a namespace names its pod security levels.

Upstream: k8s.io/pod-security-admission. There are no pods here to evaluate, so the labels alone are validated.
"""

import re
from collections.abc import Mapping
from typing import Any

from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.documents.document import View
from apiext.meta import status
from apiext.meta.fields import FieldError, invalid
from apiext.meta.names import GroupKind, GroupResource

_LEVELS = ("privileged", "baseline", "restricted")
_VERSION = re.compile(r"latest|v1\.(?:[0-9]|[1-9][0-9]{0,17})")
_PREFIX = "pod-security.kubernetes.io/"
_KIND = GroupKind("", "Namespace")


class PodSecurity:
    """The plug-in."""

    __slots__ = ()
    name = "PodSecurity"

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether a write is one of a namespace."""
        return resource == NAMESPACES and operation != "DELETE"

    async def review(self, attributes: Attributes) -> None:
        """Raise 422 for invalid labels; on an update only if the validation errors changed."""
        if attributes.subresource:
            return
        errors = _errors(attributes.new)
        if errors and (attributes.old is None or errors != _errors(attributes.old)):
            raise status.invalid(_KIND, attributes.name or attributes.told_name, errors)


def _errors(namespace: View | None) -> list[FieldError]:
    labels: Mapping[str, Any] = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    errors = []
    for mode in ("enforce", "audit", "warn"):
        level, version = labels.get(_PREFIX + mode), labels.get(f"{_PREFIX}{mode}-version")
        if level is not None and level not in _LEVELS:
            errors.append(invalid(_path(mode), level, f"must be one of {', '.join(_LEVELS)}"))
        if version is not None and not _VERSION.fullmatch(version):
            errors.append(invalid(_path(f"{mode}-version"), version, 'must be "latest" or "v1.x"'))
    return errors


def _path(label: str) -> str:
    return f"metadata.labels[{_PREFIX}{label}]"
