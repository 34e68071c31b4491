"""The service account and the object to which a token is bound.

The module also has the type of the function that finds them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"


class BadToken(ValueError):
    """A token of this server that is invalid or has become invalid.

    The message is upstream's (pkg/serviceaccount).
    """


class Unbound(BadToken):
    """A token that is invalid according to the cached service account or bound object.

    The token may be valid according to a newer object in the store.
    """


class Account(Struct, frozen=True):
    """A service account in the claims of a token."""

    namespace: str
    name: str
    uid: str


class BoundObject(Struct, frozen=True):
    """An object in the claims of a token: the bound object, or the node of a bound pod.

    The token is valid only as long as the bound object exists. The uid is empty for a missing node of a pod.
    """

    name: str
    uid: str


BOUND = {"secret": "secrets", "pod": "pods", "node": "nodes"}
"""Claim of a bound object → resource of the core group, in the order in which upstream validates the claims."""


class Record(Struct, frozen=True):
    """The fields of a service account or bound object that token validation needs.

    Absent fields are empty. ``deleted`` is the deletionTimestamp. ``token`` is in base64. ``used`` and ``invalid`` are
    days in labels of a secret, such as ``2026-11-29``: the day of the last use of its token, and the day on which the
    token became invalid.
    """

    uid: str
    deleted: str = ""
    token: str = ""
    used: str = ""
    invalid: str = ""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Record":
        """Return the record of a stored object."""
        metadata = document["metadata"]
        labels = metadata.get("labels") or {}
        return cls(
            metadata.get("uid") or "",
            metadata.get("deletionTimestamp") or "",
            (document.get("data") or {}).get("token") or "",
            labels.get(LAST_USED) or "",
            labels.get(INVALID_SINCE) or "",
        )


Find = Callable[[str, str, str], Record | None]
"""(resource of the core group, namespace, name) → record of the object, None if it does not exist."""
