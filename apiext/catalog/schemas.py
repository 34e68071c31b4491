"""Schemas of versions: read from the definition and compiled when first used, since most are never used."""

from collections.abc import Callable

from apiext.crd.definition import schema_of
from apiext.documents.document import View
from apiext.schema.compile import CompiledSchema, compile_schema

Schema = Callable[[], View | None]


def schema_from(definition: Callable[[], View], version: str) -> Schema:
    """Return a function that reads a version's schema from its definition, which nobody has to keep."""
    return lambda: schema_of(definition(), version)


def lazy_schema(schema: Schema, *, preserve_unknown_fields: bool) -> Callable[[], CompiledSchema]:
    """Return a function that compiles the schema at its first call and gives the same value from then on."""
    made: list[CompiledSchema] = []

    def get() -> CompiledSchema:
        if not made:
            made.append(compile_schema(schema(), preserve_unknown_fields=preserve_unknown_fields))
        return made[0]

    return get
