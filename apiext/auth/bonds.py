"""The account and secret to which a token of a service account is bound, and how both are found."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"


class BadToken(ValueError):
    """A token of this server that does not count, or not any more; the text says why (pkg/serviceaccount)."""


class Unbound(BadToken):
    """One that does not count by what the cache has of its account or secret: the store may know more."""


class Account(Struct, frozen=True):
    """A service account as tokens name it."""

    namespace: str
    name: str
    uid: str


class Bound(Struct, frozen=True):
    """A secret that a token ends with."""

    name: str
    uid: str


class Record(Struct, frozen=True):
    """Relevant fields of a stored account or secret: ``deleted`` is the deletion time, ``token`` in base64.

    ``used`` and ``invalid`` are the days, as in its labels, of the token's last use and of its invalidation.
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
"""(resource of the core group, namespace, name) → what counts of the object, None when it is not there."""
