"""Ownership of the field that a scale endpoint writes (SRV-010)."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents.document import Document
from apiext.managedfields import entries
from apiext.managedfields.entries import EntryError, Manager, Managers, Owned
from apiext.managedfields.fieldset import contains, difference, of, union

Paths = Mapping[str, Sequence[str]]
"""apiVersion → the names that lead to the replicas in it, none where there is no scale endpoint."""


def scaled(given: Any, paths: Paths) -> list[Document]:
    """Return managedFields after a PUT of a scale: nobody owns the replicas, entries of other versions are gone.

    Recorded: upstream cannot track a PUT of a custom object's Scale, so who sends it does not become an owner.
    """
    return entries.encode(_without_replicas(_readable(given), paths))


def patched(given: Any, paths: Paths, manager: Manager, owner: Owned) -> list[Document]:
    """Return managedFields after a patch that changed the replicas: ``owner``, without fields yet, is their only one.

    Recorded: unlike a PUT a patch is tracked, as long as somebody owned the replicas before.
    """
    managers = _readable(given)
    kept = _without_replicas(managers, paths)
    if any(
        contains(it.fields, _elements(paths[it.api_version])) for it in managers.values() if it.api_version in paths
    ):
        replicas = of([_elements(paths[owner.api_version])])
        before = kept.get(manager)
        kept[manager] = owner.having(union(replicas, before.fields) if before else replicas)
    return entries.encode(kept)


def _without_replicas(managers: Managers, paths: Paths) -> Managers:
    kept: Managers = {}
    for manager, owned in managers.items():
        if owned.api_version not in paths:
            continue
        fields = difference(owned.fields, of([_elements(paths[owned.api_version])]))
        if fields:
            kept[manager] = owned.having(fields)
    return kept


def _elements(names: Sequence[str]) -> list[str]:
    return [f"f:{name}" for name in names]


def _readable(given: Any) -> Managers:
    try:
        return entries.decode(given)
    except EntryError:
        return {}
