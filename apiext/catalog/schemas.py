"""Schemas of versions, compiled when first used."""

from collections.abc import Callable

from apiext.documents.document import View
from apiext.schema.compile import CompiledSchema, compile_schema


def lazy_schema(schema: View | None, *, preserve_unknown_fields: bool) -> Callable[[], CompiledSchema]:
    """Return a function that compiles the schema at its first call and gives the same value from then on."""
    made: list[CompiledSchema] = []

    def get() -> CompiledSchema:
        if not made:
            made.append(compile_schema(schema, preserve_unknown_fields=preserve_unknown_fields))
        return made[0]

    return get
