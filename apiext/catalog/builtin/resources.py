"""List of the built-in resources."""

from collections.abc import Callable

from apiext.catalog.builtin import kinds as kinds_module
from apiext.catalog.builtin.definitions import definitions_resource
from apiext.catalog.builtin.kinds import Allocate, kinds
from apiext.catalog.builtin.namespaces import namespaces_resource
from apiext.catalog.served import ServedResource
from apiext.go_types.rows import rows


def builtin_resources(
    *,
    v1beta1: bool = True,
    enabled: Callable[[str, bool], bool] = lambda _, default: default,
    event_ttl: int = kinds_module.EVENT_TTL,
    allocate: Allocate = lambda new, old, dry_run: new,
) -> list[ServedResource]:
    """Return the built-in resources.

    With ``v1beta1``, definitions are also served in v1beta1 (B1-002, DIS-12). ``enabled(api_version, default)`` returns
    whether an API version, such as ``apps/v1``, is served; ``default`` is false if it is disabled by default. The
    function is not called for definitions and namespaces. Events expire ``event_ttl`` seconds after their last write.
    ``allocate(new, old, dry_run)`` allocates missing addresses and ports of services.
    """
    return [definitions_resource(v1beta1=v1beta1), namespaces_resource(), *kinds(enabled, event_ttl, allocate)]


def api_versions() -> set[str]:
    """Return the API versions of the kinds in go_types/rows.py, such as ``apps/v1``.

    Each of them can be disabled.
    """
    return {one.api_version for row in rows() for one in row.all_versions()}
