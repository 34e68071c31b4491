"""Convert the ownership of the replicas field between a Scale and its object (SRV-010)."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents.document import Document
from apiext.managedfields import entries
from apiext.managedfields.entries import UPDATE, Manager, Managers, Owned
from apiext.managedfields.fieldset import contains, difference, of

Paths = Mapping[str, Sequence[str]]
"""apiVersion → the field names of the path to replicas, empty if the version has no scale endpoint."""

API_VERSION = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")


def scale_entries(given: Any, paths: Paths) -> list[Document]:
    """Convert the managedFields of an object to those of its Scale.

    Upstream: ScaleHandler.ToSubresource.
    """
    owners = {manager: owned for manager, owned in entries.readable(given).items() if _has_replicas(owned, paths)}
    return entries.encode(
        {_in_scale(manager): Owned(API_VERSION, of([_REPLICAS]), owned.time) for manager, owned in owners.items()}
    )


def object_entries(given: Any, of_scale: Any, paths: Paths, api_version: str) -> list[Document]:
    """Return the managedFields of an object after a write of its Scale.

    Upstream: ScaleHandler.ToParent. ``given`` are the managedFields of the object before the write. ``of_scale`` are
    the managedFields of the Scale after the write. Entries of ``given`` with unknown versions are deleted.

    The identity of an entry is its manager, operation and version. Appliers have no version in it. Updaters have the
    version autoscaling/v1 in ``of_scale`` (``_in_scale``), so their identities differ between the two arguments. An
    entry of ``given`` keeps the replicas if ``of_scale`` has an entry with the same identity, and else loses them. Each
    other entry of ``of_scale`` with the replicas is added, with the version ``api_version``. It gets the time of the
    entry of ``given`` with the same identity, and else no time.
    """
    above, owners = entries.readable(given), entries.readable(of_scale)
    kept: Managers = {}
    for manager, owned in above.items():
        if owned.api_version not in paths:
            continue
        if not _has_replicas(owned, paths) or owners.pop(manager, None) is not None:
            kept[manager] = owned
            continue
        fields = difference(owned.fields, of([_elements(paths[owned.api_version])]))
        if fields:
            kept[manager] = owned.having(fields)
    for manager, owned in owners.items():
        if contains(owned.fields, _REPLICAS):
            since = above[manager].time if manager in above else ""
            kept[manager] = Owned(api_version, of([_elements(paths[api_version])]), since)
    return entries.encode(kept)


def _in_scale(manager: Manager) -> Manager:
    """Return the identity of a manager in the Scale.

    As in upstream, the version in the identity of an updater becomes autoscaling/v1. The identity of an applier has no
    version.
    """
    return manager._replace(api_version=API_VERSION) if manager.operation == UPDATE else manager


def _has_replicas(owned: Owned, paths: Paths) -> bool:
    names = paths.get(owned.api_version)
    return bool(names) and contains(owned.fields, _elements(names or ()))


def _elements(names: Sequence[str]) -> list[str]:
    return [f"f:{name}" for name in names]
