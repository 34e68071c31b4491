"""Warnings in the responses to writes of definitions (UPD-009, B1-005)."""

from apiext.crd.encoding import to_storage
from apiext.crd.validation import schemas_of
from apiext.documents.document import View
from apiext.schema.definitions import format_warnings, rule_warnings, set_warnings


def warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a v1 definition.

    On update, omit warnings about formats and sets that are also in ``old``, and about the rules of unchanged schemas.
    """
    return stored_form_warnings(to_storage(new), to_storage(old) if old is not None else None)


def stored_form_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings of ``warnings`` for definitions in the stored form.

    The stored form is v1beta1, see encoding.py.
    """
    schemas = schemas_of(new["spec"])
    before = [schema for schema, _ in schemas_of(old["spec"])] if old is not None else []
    found = format_warnings([schema for schema, _ in schemas], before)
    found += set_warnings([schema for schema, _ in schemas], before)
    for schema, path in schemas:
        if schema not in before:
            found += rule_warnings(schema, path)
    return found
