"""The list of built-in resources."""

from apiext.catalog.builtin.definitions import definitions_resource
from apiext.catalog.builtin.namespaces import namespaces_resource
from apiext.catalog.served import ServedResource


def builtin_resources(*, v1beta1: bool = True) -> list[ServedResource]:
    """Return the built-in resources; ``v1beta1`` also serves definitions in their old version (B1-002, DIS-12)."""
    return [definitions_resource(v1beta1=v1beta1), namespaces_resource()]
