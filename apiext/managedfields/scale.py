"""Ownership of the field that a scale endpoint writes, as a Scale shows it and as its object keeps it (SRV-010)."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents.document import Document
from apiext.managedfields import entries
from apiext.managedfields.entries import UPDATE, Manager, Managers, Owned
from apiext.managedfields.fieldset import contains, difference, of

Paths = Mapping[str, Sequence[str]]
"""apiVersion → the names that lead to the replicas in it, none where there is no scale endpoint."""

API_VERSION = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")


def shown(given: Any, paths: Paths) -> list[Document]:
    """Return the managedFields of the Scale of an object that has these (upstream: ScaleHandler.ToSubresource)."""
    owners = {who: owned for who, owned in entries.readable(given).items() if _has_replicas(owned, paths)}
    return entries.encode(
        {_in_scale(who): Owned(API_VERSION, of([_REPLICAS]), owned.time) for who, owned in owners.items()}
    )


def put_back(given: Any, of_scale: Any, paths: Paths, api_version: str) -> list[Document]:
    """Return the managedFields of an object that had ``given`` after its Scale got ``of_scale``.

    Entries of unknown versions are gone; those of the Scale are put in ``api_version``, without a time unless their
    manager had one in the object (upstream: ScaleHandler.ToParent).
    """
    above, owners = entries.readable(given), entries.readable(of_scale)
    kept: Managers = {}
    for who, owned in above.items():
        if owned.api_version not in paths:
            continue
        if not _has_replicas(owned, paths) or owners.pop(who, None) is not None:
            kept[who] = owned
            continue
        fields = difference(owned.fields, of([_elements(paths[owned.api_version])]))
        if fields:
            kept[who] = owned.having(fields)
    for who, owned in owners.items():
        if contains(owned.fields, _REPLICAS):
            since = above[who].time if who in above else ""
            kept[who] = Owned(api_version, of([_elements(paths[api_version])]), since)
    return entries.encode(kept)


def _in_scale(who: Manager) -> Manager:
    """Return a manager as the scale knows it.

    upstream: an updater is somebody else there, since a version is part of who it is; an applier stays who it was.
    """
    return who._replace(api_version=API_VERSION) if who.operation == UPDATE else who


def _has_replicas(owned: Owned, paths: Paths) -> bool:
    names = paths.get(owned.api_version)
    return bool(names) and contains(owned.fields, _elements(names or ()))


def _elements(names: Sequence[str]) -> list[str]:
    return [f"f:{name}" for name in names]
