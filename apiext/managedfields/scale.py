"""Ownership of the field that a scale endpoint writes (SRV-010)."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents.document import Document
from apiext.managedfields import entries
from apiext.managedfields.entries import UPDATE, EntryError, Manager, Managers, Owned
from apiext.managedfields.fieldset import contains, difference, of

Paths = Mapping[str, Sequence[str]]
"""apiVersion → the names that lead to the replicas in it, none where there is no scale endpoint."""

_SCALE = "autoscaling/v1"


def written(given: Any, paths: Paths, writer: Manager, before: Any, after: Any) -> list[Document]:
    """Return managedFields after ``writer`` wrote a scale; ``before`` and ``after`` are the numbers of replicas.

    Who changed them owns them alone, as long as somebody owned them before. Entries of unknown versions are gone
    (upstream: ScaleHandler.ToSubresource and ToParent).
    """
    above = _readable(given)
    owners = {_in_scale(who) for who, owned in above.items() if _has_replicas(owned, paths)}
    if owners and before != after:
        owners = {_in_scale(writer)} if after else set()  # upstream: a Scale leaves zero out, so nobody owns it
    kept: Managers = {}
    for who, owned in above.items():
        if owned.api_version not in paths:
            continue
        if who in owners or not _has_replicas(owned, paths):
            kept[who] = owned
            owners.discard(who)
            continue
        fields = difference(owned.fields, of([_elements(paths[owned.api_version])]))
        if fields:
            kept[who] = owned.having(fields)
    for who in owners:
        kept[who] = Owned(writer.api_version, of([_elements(paths[writer.api_version])]))  # recorded: without a time
    return entries.encode(kept)


def _in_scale(who: Manager) -> Manager:
    """Return a manager as the scale knows it.

    upstream: an updater is somebody else there, since a version is part of who it is; an applier stays who it was.
    """
    return who._replace(api_version=_SCALE) if who.operation == UPDATE else who


def _has_replicas(owned: Owned, paths: Paths) -> bool:
    names = paths.get(owned.api_version)
    return bool(names) and contains(owned.fields, _elements(names or ()))


def _elements(names: Sequence[str]) -> list[str]:
    return [f"f:{name}" for name in names]


def _readable(given: Any) -> Managers:
    try:
        return entries.decode(given)
    except EntryError:
        return {}
