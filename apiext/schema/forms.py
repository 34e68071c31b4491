"""Cache the structural forms of all schemas in a document, for the checks that need them."""

from collections.abc import Iterator, Mapping
from typing import Any

from apiext.documents.document import View
from apiext.schema.parse import parse
from apiext.schema.rules_of_structure import inner, unsupported_here
from apiext.schema.structural import Structural

_JUNCTORS = (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of"))


class Forms:
    """Cache: id() of a schema inside a document → its structural form.

    The document must stay unchanged.
    """

    __slots__ = ("_forms", "_unsupported")

    def __init__(self) -> None:
        self._forms: dict[int, Structural] = {}
        self._unsupported: dict[int, bool] = {}

    def of(self, node: View) -> Structural | None:
        """Return the structural form of a schema, or None if it contains unsupported keywords.

        See STR-012.
        """
        if id(node) not in self._unsupported:
            self._classify(node)
        if self._unsupported[id(node)]:
            return None
        if id(node) not in self._forms:
            self._cache(node, parse(node))
        return self._forms[id(node)]

    def _classify(self, node: View) -> None:
        order: list[View] = []
        stack: list[Any] = [node]
        while stack:
            found = stack.pop()
            if isinstance(found, Mapping) and id(found) not in self._unsupported:
                order.append(found)
                stack += inner(found)
        for found in reversed(order):  # inner schemas come before the schemas that contain them
            self._unsupported[id(found)] = bool(unsupported_here(found)) or any(
                self._unsupported.get(id(below), False) for below in inner(found) if isinstance(below, Mapping)
            )

    def _cache(self, node: View, form: Structural) -> None:
        stack = [(node, form)]
        while stack:
            found, made = stack.pop()
            self._forms[id(found)] = made
            stack += _parts(found, made)


def _parts(node: View, form: Structural) -> Iterator[tuple[View, Structural]]:
    """Yield (schema, form) of each direct subschema that may have rules."""
    for name, below in (node.get("properties") or {}).items():
        if below:
            yield below, form.properties[name]
    for branches, forms in _JUNCTORS:
        pairs = zip(node.get(branches) or (), getattr(form.junctors, forms), strict=True)
        yield from (pair for pair in pairs if pair[0])
    for keyword, made in (
        ("items", form.items),
        ("additionalProperties", form.map_values),
        ("not", form.junctors.not_),
    ):
        if made is not None and node[keyword]:
            yield node[keyword], made
