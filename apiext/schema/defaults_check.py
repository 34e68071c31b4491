"""Whether the defaults of a schema are valid against it and already pruned (DEF-001…003)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from apiext.documents.document import Document, clone
from apiext.meta.fields import FieldError, aggregate, child, invalid, item
from apiext.schema import coerce, report
from apiext.schema.budget import STEPS, OverBudget
from apiext.schema.prune import pruner
from apiext.schema.rules import OBJECT_BUDGET, Run, scope_of
from apiext.schema.structural import META_FIELDS, Structural
from apiext.schema.validate import passes

Around = Callable[[Any], Document]
"""Builds the fake object that surrounds a value of embedded metadata (DEF-003)."""


def matters(node: Structural | None) -> bool:
    """Tell whether there is a default at or below a node; those of map values are not checked, as upstream."""
    if node is None:
        return False
    found = node.compiled.get("has defaults")
    if found is None:
        found = node.default is not None or matters(node.items)
        if not found:
            for below in node.properties.values():
                if matters(below):
                    found = True
                    break
        node.compiled["has defaults"] = found
    return bool(found)


def errors(root: Structural, path: str, *, pruned: bool = True) -> list[FieldError]:
    """Return what is wrong with the defaults of a schema parsed with all its formats.

    ``pruned`` false leaves out DEF-002.
    """
    return _Check(root, pruned).errors(root, path, _typed, False) if matters(root) else []


def _typed(value: Any) -> Document:
    """Return the fake object itself, with a type where it has none."""
    return {"kind": "Validation", "apiVersion": "validation/v1", **value}


class _Check:
    """One embedded resource, or the whole object, and the defaults in it."""

    __slots__ = ("budget", "pruned", "resource", "root")

    def __init__(self, root: Structural, pruned: bool) -> None:
        self.root = root
        self.resource = root
        self.pruned = pruned
        self.budget = OBJECT_BUDGET  # of all defaults together

    def errors(self, node: Structural, path: str, around: Around, in_metadata: bool) -> list[FieldError]:
        """Return the errors at and below a node."""
        outer = self.resource
        if node.embedded or node is self.root:
            in_metadata, around, self.resource = False, _typed, node
        found: list[FieldError] = []
        if node.default is not None:
            where = child(path, "default")
            found += self._in_metadata(node, where, around) if in_metadata else self._by_itself(node, where)
        if matters(node.items):
            assert node.items is not None
            found += self.errors(node.items, child(path, "items"), _listed(around), in_metadata)
        resource = node.embedded or node is self.root
        for name, below in node.properties.items():
            if matters(below):
                inside = in_metadata or (resource and name in META_FIELDS)
                where = item(child(path, "properties"), name)
                found += self.errors(below, where, _named(around, name), inside)
        self.resource = outer
        return found

    def _by_itself(self, node: Structural, path: str) -> list[FieldError]:
        root = node is self.root
        value = clone(node.default)
        found: list[FieldError] = []
        if self.pruned and isinstance(value, (dict, list)) and pruner(node, root=root)(clone(value)):
            found.append(invalid(path, node.default, "must not have unknown fields"))
        try:
            coerce.coerce(node, value, path, root=root)
        except coerce.CoerceError as error:
            return [*found, error.error]
        return found + (
            coerce.errors(node, value, path, root=root) or _values(node, value, path) or self._rules(node, value, path)
        )

    def _rules(self, node: Structural, value: Any, path: str) -> list[FieldError]:
        """Return the rules that a default breaks: as an unchanged value, then as a new one (DEF-004)."""
        scope = scope_of(node, resource=node is self.root)
        if scope is None or self.budget <= 0:
            return []
        for old in (value, None):
            run = Run(self.budget)
            run.visit(scope, value, old, path)
            self.budget = run.budget
            if run.errors or run.budget < 0:
                return run.errors
        return []

    def _in_metadata(self, node: Structural, path: str, around: Around) -> list[FieldError]:
        value = around(clone(node.default))
        try:
            coerce.coerce(self.resource, value, root=True)
        except coerce.CoerceError as error:
            return [invalid(path, node.default, f"must result in valid metadata: {error}")]
        wrong = coerce.errors(self.resource, value, root=True)
        if wrong:
            return [invalid(path, node.default, f"must result in valid metadata: {aggregate(wrong)}")]
        return _values(node, node.default, path)


def _values(node: Structural, value: Any, path: str) -> list[FieldError]:
    node = _untyped(node)
    STEPS.refill()
    try:
        return [] if passes(node, value) else report.errors(node, value, path)
    except OverBudget as over:
        return [invalid(path, "", str(over))]


def _untyped(node: Structural) -> Structural:
    """Return the node without the types of integers or text: upstream checks all but those in a default."""
    known = node.compiled.get("untyped")
    if known is not None:
        return known or node
    items = _untyped(node.items) if node.items is not None else None
    properties = {name: _untyped(below) for name, below in node.properties.items()}
    additional = _untyped(node.additional) if isinstance(node.additional, Structural) else node.additional
    same = items is node.items and additional is node.additional and properties == node.properties
    if same and not node.int_or_string:
        node.compiled["untyped"] = False  # a node that held itself would be a cycle
        return node
    found = replace(node, int_or_string=False, items=items, properties=properties, additional=additional, compiled={})
    node.compiled["untyped"] = found
    return found


def _named(around: Around, name: str) -> Around:
    return lambda value: around({name: value})


def _listed(around: Around) -> Around:
    return lambda value: around([value])
