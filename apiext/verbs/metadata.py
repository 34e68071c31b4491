"""Set, keep and delete system metadata on create, update and delete."""

from collections.abc import Sequence

import orjson

from apiext.documents.document import Document, View
from apiext.meta.time import parse
from apiext.meta.uids import Uids

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

_UIDS = Uids()
_WIPED = frozenset(("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"))


def wipe(document: Document) -> None:
    """Delete the fields that only the server may set on a new object (WRI-001)."""
    metadata = document.setdefault("metadata", {})
    if not _WIPED.isdisjoint(metadata):
        for name in _WIPED:
            metadata.pop(name, None)


def fill_on_create(document: Document, now: str) -> None:
    """Set the fields that only the server may set on a new object (WRI-001)."""
    metadata = document["metadata"]
    metadata["uid"] = _UIDS.next()
    metadata["creationTimestamp"] = now


def fill_on_update(document: Document, old: View) -> None:
    """Set the fields that an update may omit, or must not change, to their stored values.

    See WRI-004.
    """
    metadata = document.setdefault("metadata", {})
    before = old["metadata"]
    metadata.pop("selfLink", None)
    if not metadata.get("uid") and "uid" in before:
        metadata["uid"] = before["uid"]
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in before:
            metadata[name] = before[name]
    if "deletionGracePeriodSeconds" in before:
        metadata.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    if "generation" in before:
        metadata["generation"] = before["generation"]
    else:
        metadata.pop("generation", None)


def mark_as_deleting(document: Document, now: str) -> None:
    """Set the metadata of a deletion that waits for finalizers (WRI-017).

    As upstream (markAsDeleting), a deletionTimestamp after ``now`` becomes ``now``: the clock was set back.
    """
    metadata = document["metadata"]
    since = metadata.get("deletionTimestamp")
    if not since and metadata.get("generation", 0) > 0:
        metadata["generation"] += 1
    if not since or _is_after(since, now):
        metadata["deletionTimestamp"] = now
    metadata["deletionGracePeriodSeconds"] = 0


def _is_after(moment: str, now: str) -> bool:
    try:
        return parse(moment) > parse(now)
    except ValueError:  # another program has stored an invalid time
        return False


def finalizers(document: View) -> Sequence[str]:
    """Return metadata.finalizers, or an empty sequence."""
    return document.get("metadata", {}).get("finalizers") or ()


def set_finalizers(document: Document, wanted: Sequence[str]) -> None:
    """Set metadata.finalizers; delete the field if ``wanted`` is empty (MET-003)."""
    metadata = document["metadata"]
    if wanted:
        metadata["finalizers"] = list(wanted)
    else:
        metadata.pop("finalizers", None)


def propagation_finalizers(now: Sequence[str], policy: str, orphan: bool | None) -> list[str]:
    """Apply a propagation policy to finalizers, and return the new finalizers (WRI-018).

    ``orphan`` is the old option orphanDependents. If it is None and the policy is empty, the existing finalizers
    determine the propagation.
    """
    if not (now or policy or orphan):
        return []
    wants_orphan = orphan if orphan is not None else policy == "Orphan" if policy else ORPHAN in now
    wants_foreground = False
    if orphan is None:
        wants_foreground = policy == "Foreground" if policy else FOREGROUND in now and ORPHAN not in now
    kept = [name for name in now if name not in (ORPHAN, FOREGROUND)]
    wanted = kept + [ORPHAN] * bool(wants_orphan) + [FOREGROUND] * wants_foreground
    # equal sets: only the order of the finalizers may differ
    return wanted if set(wanted) != set(now) else list(now)  # upstream: keeps their order


def dedup_owners(document: Document) -> list[str]:
    """Delete duplicate ownerReferences; return the UIDs of the duplicates (WRI-015)."""
    owners = document.get("metadata", {}).get("ownerReferences")
    if not owners or len(owners) == 1 or len({owner.get("uid") for owner in owners}) == len(owners):
        return []
    kept: dict[bytes, object] = {}
    repeated: list[str] = []
    for owner in owners:
        same = orjson.dumps(owner, option=orjson.OPT_SORT_KEYS)
        if same in kept:
            repeated.append(str(owner.get("uid", "")))
        else:
            kept[same] = owner
    document["metadata"]["ownerReferences"] = list(kept.values())
    return list(dict.fromkeys(repeated))
