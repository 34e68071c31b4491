"""Schemas of versions: read from the definition and compiled when first used, since most are never used."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from apiext import limits as server_limits
from apiext.crd.definition import schema_of
from apiext.documents.document import View

if TYPE_CHECKING:  # imported when the first schema is compiled (decision 36)
    from apiext.schema.compile import CompiledSchema

Schema = Callable[[], View | None]


def schema_from(definition: Callable[[], View], version: str) -> Schema:
    """Return a function that reads a version's schema from its definition, which nobody has to keep."""
    return lambda: schema_of(definition(), version)


class LazySchema:
    """Compiles the schema at its first call and gives the same value from then on."""

    __slots__ = ("_long_from", "_made", "_preserve", "_schema")

    def __init__(self, schema: Schema, preserve_unknown_fields: bool) -> None:
        self._schema = schema
        self._preserve = preserve_unknown_fields
        self._made: CompiledSchema | None = None
        self._long_from = server_limits.WORK_INLINE  # bytes of objects that are known to take long

    def __call__(self) -> "CompiledSchema":
        """Return the compiled schema."""
        if self._made is None:
            from apiext.schema.compile import compile_schema

            self._made = compile_schema(self._schema(), preserve_unknown_fields=self._preserve)
        return self._made

    @property
    def cold(self) -> bool:
        """Whether reading an object takes long, since something is compiled for it."""
        return self._made is None or not self._made.readable

    def prepare(self, *, quickly: bool = False) -> None:
        """Compile what reading an object takes; ``quickly`` as CompiledSchema.prepare has it."""
        self().prepare(quickly=quickly)

    def slow(self, size: int) -> bool:
        """Whether work on an object of so many bytes may take long: its schema, its rules, its defaults."""
        made = self._made
        if made is None or not made.warm or size >= self._long_from:
            return True
        return made.growth * size > server_limits.WORK_INLINE * 8

    def report(self, size: int, long: bool) -> None:
        """Learn from an object whether its rules took long; what was long once may be short for others."""
        known = self._long_from
        self._long_from = min(known, size) if long else min(max(known, size + 1), server_limits.WORK_INLINE)


def prepare_all(*schemas: LazySchema, quickly: bool = False) -> None:
    """Compile what reading objects of several versions takes."""
    for schema in schemas:
        schema.prepare(quickly=quickly)
