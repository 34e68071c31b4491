"""Validate the defaults of a schema against the schema, and report their unknown fields.

See DEF-001…003.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from apiext.documents.document import Document, clone
from apiext.meta.fields import FieldError, aggregate, child, invalid, item
from apiext.schema import coerce, limits, report
from apiext.schema.budget import OverBudget, refill
from apiext.schema.prune import pruner
from apiext.schema.rules import Run, scope_of
from apiext.schema.structural import META_FIELDS, Junctors, Structural, anywhere
from apiext.schema.validate import passes

Around = Callable[[Any], Document]
"""Default of a field inside metadata → a fake object with this default at the place of the field (DEF-003)."""


applies_to = anywhere("has defaults", lambda node: node.default is not None, values=False)
"""Returns whether a node or any node below it has a default; as upstream, defaults of map values are ignored."""


def errors(root: Structural, path: str, *, pruned: bool = True) -> list[FieldError]:
    """Return the errors of the defaults of a schema.

    If ``pruned`` is false, ignore unknown fields (DEF-002). As in upstream, a default must have the format of its
    schema, also a format that is ignored in objects. So parse the schema with ``strip_formats=False``.
    """
    return _Check(root, pruned).errors(root, path, _typed, False) if applies_to(root) else []


def _typed(value: Any) -> Document:
    """Return a fake object with the value's fields; add apiVersion and kind if they are missing."""
    return {"kind": "Validation", "apiVersion": "validation/v1", **value}


class _Check:
    """The validation of all defaults of a schema.

    ``resource`` is the innermost embedded resource around the current node, or the root.
    """

    __slots__ = ("budget", "pruned", "resource", "root")

    def __init__(self, root: Structural, pruned: bool) -> None:
        self.root = root
        self.resource = root
        self.pruned = pruned
        self.budget = limits.OBJECT_BUDGET  # CEL cost units for all defaults of the schema

    def errors(self, node: Structural, path: str, around: Around, in_metadata: bool) -> list[FieldError]:
        """Return the errors at and below a node."""
        outer = self.resource
        if node.extensions.embedded or node is self.root:
            in_metadata, around, self.resource = False, _typed, node
        found: list[FieldError] = []
        if node.default is not None:
            where = child(path, "default")
            found += self._in_metadata(node, where, around) if in_metadata else self._by_itself(node, where)
        if applies_to(node.items):
            assert node.items is not None
            found += self.errors(node.items, child(path, "items"), _listed(around), in_metadata)
        resource = node.extensions.embedded or node is self.root
        for name, below in node.properties.items():
            if applies_to(below):
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
        """Return the rule errors of a default as an unchanged, else as a new value (DEF-004).

        If the rules have errors for the unchanged value, do not evaluate them for the new value.
        """
        scope = scope_of(node, resource=node is self.root)
        if scope is None or self.budget <= 0:
            return []
        for old in (value, None):
            run = Run(self.budget, path)
            run.visit(scope, value, old)
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
    refill()
    try:
        return [] if passes(node, value) else report.errors(node, value, path)
    except OverBudget as over:
        return [invalid(path, "", str(over))]


def _untyped(node: Structural, *, branch: bool = False) -> Structural:
    """Return the schema with which upstream validates a default.

    This schema and all schemas inside it have no x-kubernetes-int-or-string. If ``branch`` is true, the node is inside
    allOf, anyOf, oneOf or not; then the result also has no ``additionalProperties: false``.
    """
    name = "untyped branch" if branch else "untyped"
    known = node.compiled.get(name)
    if known is not None:
        return known or node
    parts: dict[str, Any] = {
        "items": _untyped(node.items, branch=branch) if node.items is not None else None,
        "properties": {member: _untyped(below, branch=branch) for member, below in node.properties.items()},
        "additional": node.additional,
        "int_or_string": False,
    }
    if isinstance(node.additional, Structural):
        parts["additional"] = _untyped(node.additional, branch=branch)
    elif branch:
        parts["additional"] = node.additional or None
    several = {
        name: tuple([_untyped(below, branch=True) for below in getattr(node.junctors, name)])
        for name in ("all_of", "any_of", "one_of")
    }
    negated = node.junctors.not_
    parts["junctors"] = Junctors(not_=None if negated is None else _untyped(negated, branch=True), **several)
    if all(part == getattr(node, field) for field, part in parts.items()):  # nodes are compared by identity
        node.compiled[name] = False  # means the node itself, which would create a reference cycle
        return node
    node.compiled[name] = found = replace(node, **parts, compiled={})
    return found


def _named(around: Around, name: str) -> Around:
    return lambda value: around({name: value})


def _listed(around: Around) -> Around:
    return lambda value: around([value])
