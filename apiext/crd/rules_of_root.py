"""Validate the root of a schema: the allowed keywords, and whether the schema compiles."""

from collections.abc import Iterator

from apiext.crd.rules_of_parts import invalid_json
from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, forbidden, invalid
from apiext.schema.compile import compile_schema
from apiext.schema.internal_text import SCHEMA_FIELDS, schema_text

_ALLOWED = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern"
    " MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields"
    " XValidations"
)
_ALLOWED_NAMES = frozenset(_ALLOWED.split())
_ONLY = "are allowed at the root of the schema if the status subresource is enabled"
_OBJECT = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'


def root_errors(schema: View, path: str, *, status: bool) -> Iterator[FieldError]:
    """Yield the errors of a schema's root (CRD-029, CRD-030).

    ``status`` is true if the version has a status subresource.
    """
    if status:
        yield from _status_errors(schema, path)
    if schema.get("nullable"):
        yield forbidden(child(path, "nullable"), "nullable cannot be true at the root")


def _status_errors(schema: View, path: str) -> Iterator[FieldError]:
    for go_name, name in SCHEMA_FIELDS:
        if name not in schema:
            continue
        if go_name == "Type" and schema["type"] != "object":
            yield invalid(child(path, "type"), schema["type"], _OBJECT)
            return
        if go_name not in _ALLOWED_NAMES:
            yield invalid_json(path, schema_text(schema), f"only [{_ALLOWED}] fields {_ONLY}")
            return


def validator_error(schema: View, path: str) -> list[FieldError]:
    """Return the error of a schema that cannot be compiled (CRD-040).

    Call this if no other check has failed.
    """
    try:
        assert compile_schema(schema).root is not None
    except ValueError as error:
        return [invalid(path, "", f"error building validator: {error}")]
    return []
