"""Schemas of versions: read from the definition and compiled when first used, since most are never used."""

from collections.abc import Callable

from apiext.crd.definition import schema_of
from apiext.documents.document import View
from apiext.schema.compile import CompiledSchema, compile_schema

Schema = Callable[[], View | None]


def schema_from(definition: Callable[[], View], version: str) -> Schema:
    """Return a function that reads a version's schema from its definition, which nobody has to keep."""
    return lambda: schema_of(definition(), version)


class LazySchema:
    """Compiles the schema at its first call and gives the same value from then on."""

    __slots__ = ("_made", "_preserve", "_schema")

    def __init__(self, schema: Schema, preserve_unknown_fields: bool) -> None:
        self._schema = schema
        self._preserve = preserve_unknown_fields
        self._made: CompiledSchema | None = None

    def __call__(self) -> CompiledSchema:
        """Return the compiled schema."""
        if self._made is None:
            self._made = compile_schema(self._schema(), preserve_unknown_fields=self._preserve)
        return self._made

    @property
    def cold(self) -> bool:
        """Whether the next use may take long, since something is made at it."""
        return self._made is None or not self._made.warm
