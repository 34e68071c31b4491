"""The list of built-in resources."""

from collections.abc import Callable

from apiext.catalog.builtin import kinds as kinds_module
from apiext.catalog.builtin.definitions import definitions_resource
from apiext.catalog.builtin.kinds import Allocate, kinds
from apiext.catalog.builtin.namespaces import namespaces_resource
from apiext.catalog.builtin.rows import rows
from apiext.catalog.served import ServedResource


def builtin_resources(
    *,
    v1beta1: bool = True,
    enabled: Callable[[str, bool], bool] = lambda _, default: default,
    event_ttl: int = kinds_module.EVENT_TTL,
    allocate: Allocate = lambda new, old, dry_run: new,
) -> list[ServedResource]:
    """Return the built-in resources; ``v1beta1`` also serves definitions in their old version (B1-002, DIS-12).

    ``enabled(group_version, default)`` says of all other kinds whether they are served; the core group's is
    ``v1``. Events stay ``event_ttl`` seconds. ``allocate(new, old, dry_run)`` gives services the addresses
    that they lack.
    """
    return [definitions_resource(v1beta1=v1beta1), namespaces_resource(), *kinds(enabled, event_ttl, allocate)]


def api_versions() -> set[str]:
    """Return the group-versions that can be turned off; the core group's is ``v1``."""
    return {one.api_version for row in rows() for one in row.every()}
