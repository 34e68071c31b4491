"""The schemas of the versions of definitions.

A schema is read and compiled at its first use, since most versions are never used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from apiext import limits as server_limits
from apiext.crd.definition import schema_of
from apiext.documents.document import View

if TYPE_CHECKING:  # imported when the first schema is compiled (decision 36)
    from apiext.schema.compile import CompiledSchema

Schema = Callable[[], View | None]


def schema_from(definition: Callable[[], View], version: str) -> Schema:
    """Return a function that reads the schema of a version from the definition at each call."""
    return lambda: schema_of(definition(), version)


class LazySchema:
    """A schema that is compiled at the first call; later calls return the same CompiledSchema."""

    __slots__ = ("_compiled", "_long_from", "_preserve", "_schema")

    def __init__(self, schema: Schema, preserve_unknown_fields: bool) -> None:
        self._schema = schema
        self._preserve = preserve_unknown_fields
        self._compiled: CompiledSchema | None = None
        self._long_from = server_limits.WORK_INLINE  # work on objects of at least this size in bytes takes long

    def __call__(self) -> "CompiledSchema":
        """Return the compiled schema."""
        if self._compiled is None:
            from apiext.schema.compile import compile_schema

            self._compiled = compile_schema(self._schema(), preserve_unknown_fields=self._preserve)
        return self._compiled

    @property
    def cold(self) -> bool:
        """True if the next read of an object takes long, because it must compile the schema."""
        return self._compiled is None or not self._compiled.readable

    def prepare(self, *, quickly: bool = False) -> None:
        """Compile everything that is needed to read objects.

        If ``quickly`` is true, also compile ``is_normal``, a fast test for objects that need no change.
        """
        self().prepare(quickly=quickly)

    def slow(self, size: int) -> bool:
        """Report whether work on an object of this size in bytes may take long.

        It may if the schema or its rules are not compiled yet, if work on such an object took long before (see
        ``report``), or if the defaults of the schema could enlarge the object too much.
        """
        made = self._compiled
        if made is None or not made.warm or size >= self._long_from:
            return True
        return made.growth * size > server_limits.WORK_INLINE * 8

    def report(self, size: int, long: bool) -> None:
        """Record, for later calls of ``slow``, whether work on an object of this size took long."""
        long_from = self._long_from
        self._long_from = min(long_from, size) if long else min(max(long_from, size + 1), server_limits.WORK_INLINE)


def prepare_all(*schemas: LazySchema, quickly: bool = False) -> None:
    """Call ``LazySchema.prepare`` of each schema."""
    for schema in schemas:
        schema.prepare(quickly=quickly)
