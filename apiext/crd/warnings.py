"""What the writer of a definition is warned of (UPD-009, B1-005)."""

from apiext.crd.encoding import to_storage
from apiext.crd.validation import schemas_of
from apiext.documents.document import View
from apiext.schema.definitions import format_warnings
from apiext.schema.traverse import subschemas

V1BETA1_DEPRECATED = (
    "apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated in v1.16+, unavailable in v1.22+; use"
    " apiextensions.k8s.io/v1 CustomResourceDefinition"
)


def warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a v1 definition; on update only about what the stored one did not have."""
    return stored_form_warnings(to_storage(new), to_storage(old) if old is not None else None)


def stored_form_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a definition in the stored form."""
    schemas = [schema for schema, _ in schemas_of(new["spec"])]
    if old is not None:
        return format_warnings(schemas, [schema for schema, _ in schemas_of(old["spec"])])
    return format_warnings(schemas) + _set_warnings(schemas)


def _set_warnings(schemas: list[View]) -> list[str]:
    found: dict[str, None] = {}
    for schema in schemas:
        for node in subschemas(schema):
            items = node.get("items")
            kind = items.get("type") if isinstance(items, dict) else None
            if node.get("x-kubernetes-list-type") == "set" and kind in ("object", "array"):
                found[
                    f'x-kubernetes-list-type: set for items of type "{kind}" is not supported by server-side apply or'
                    " CEL validation rules"
                ] = None
    return list(found)
