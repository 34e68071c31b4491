"""Ownership of the field that a scale endpoint writes (SRV-010)."""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents.document import Document
from apiext.managedfields import entries
from apiext.managedfields.entries import EntryError, Managers
from apiext.managedfields.fieldset import difference, of

Paths = Mapping[str, Sequence[str]]
"""apiVersion → the names that lead to the replicas in it, none where there is no scale endpoint."""


def scaled(given: Any, paths: Paths) -> list[Document]:
    """Return managedFields after a write through scale: nobody owns the replicas, entries of other versions are gone.

    Recorded: upstream cannot track a Scale of a custom object, so who writes through it does not become an owner.
    """
    kept: Managers = {}
    for manager, owned in _readable(given).items():
        if owned.api_version not in paths:
            continue
        fields = difference(owned.fields, of([_elements(paths[owned.api_version])]))
        if fields:
            kept[manager] = owned.having(fields)
    return entries.encode(kept)


def _elements(names: Sequence[str]) -> list[str]:
    return [f"f:{name}" for name in names]


def _readable(given: Any) -> Managers:
    try:
        return entries.decode(given)
    except EntryError:
        return {}
