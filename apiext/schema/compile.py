"""Compile the schema of a version of a definition into functions on its objects."""

from collections.abc import Mapping, Sequence
from typing import Literal

import orjson

from apiext.documents.document import Document, View
from apiext.logs import note
from apiext.meta.fields import INVALID, FieldError, as_many_as_shown
from apiext.schema import coerce, list_types, report
from apiext.schema.budget import DEFAULTS, OverBudget, refill
from apiext.schema.default import defaulter, growth
from apiext.schema.normal_form import Test, normal_test, unknown
from apiext.schema.nulls import null_dropper
from apiext.schema.parse import parse
from apiext.schema.prune import pruner, sorted_paths
from apiext.schema.ratchet import Link
from apiext.schema.recursion import deep_recursion
from apiext.schema.rules import Run, Scope, blocked, not_checked, scope_of
from apiext.schema.structural import Structural
from apiext.schema.validate import passes


class CompiledSchema:
    """The schema of one version.

    Its structural form and each function are compiled at first use. Methods that change a document change it in place.
    ``preserve_unknown_fields`` is the legacy field of the definition; if it is true, no field is pruned (PRU-006,
    B1-007). ``warm`` is true as soon as ``rules`` has evaluated the rules, or has found that there are none.
    ``readable`` is true after ``prepare``. ``is_normal(document)`` is a fast path: true means that ``prune``,
    ``drop_nulls`` and ``coerce_embedded`` would not change the document, and that no value outside metadata is a float.
    False means unknown; ``is_normal`` always returns False before ``prepare(quickly=True)``. ``growth`` is the maximal
    number of bytes of defaults in one list item or map value; it is 0 until ``rules`` computes it.
    """

    __slots__ = (
        "_plain",
        "_root",
        "_scope",
        "_source",
        "growth",
        "is_normal",
        "preserve_unknown_fields",
        "readable",
        "warm",
    )

    def __init__(self, schema: View | None, preserve_unknown_fields: bool) -> None:
        self.preserve_unknown_fields = preserve_unknown_fields
        self.warm = False
        self.readable = False
        self.growth = 0
        self.is_normal: Test = unknown
        self._root: Structural | None = None
        self._scope: Scope | Literal[False] | None = None  # False: the schema has no rules
        self._source: View | None = schema or {}
        self._plain: bool | None = None  # true: the schema has no embedded resource, and no list of type set or map

    @property
    def root(self) -> Structural:
        """Return the structural form of the schema."""
        if self._root is None:
            source = self._source
            with deep_recursion():
                # another thread may have parsed the schema and dropped its source
                self._root = self._root or parse(source if source is not None else {})
            self._source = None
        return self._root

    def prepare(self, *, quickly: bool = False) -> None:
        """Compile all functions that convert a stored object.

        With ``quickly``, also compile ``is_normal``. But if ``preserve_unknown_fields`` is true, or if the schema
        declares an embedded resource, ``is_normal`` still always returns False.
        """
        root = self.root
        if quickly and not self.preserve_unknown_fields and not coerce.applies_to(root):
            self.is_normal = normal_test(root, root=True)
        coerce.applies_to(root)
        pruner(root, root=True)
        null_dropper(root, root=True)
        defaulter(root, root=True)
        self.readable = True

    @property
    def coerces(self) -> bool:
        """Return whether the schema declares an embedded resource.

        Then ``coerce_embedded`` is necessary.
        """
        return coerce.applies_to(self.root)

    def prune(self, document: Document) -> list[str]:
        """Delete unknown fields and return their sorted paths; metadata stays unchanged.

        See PRU-001…008.
        """
        if self.preserve_unknown_fields:
            return []
        return sorted_paths(pruner(self.root, root=True)(document))

    def drop_nulls(self, document: Document) -> bool:
        """Delete null fields that are not nullable and have no default (NUL-001).

        Return whether any field was deleted. If ``preserve_unknown_fields`` is true, delete none.
        """
        drop = None if self.preserve_unknown_fields else null_dropper(self.root, root=True)
        return drop(document) if drop is not None else False

    def coerce_embedded(self, document: Document, *, drop_invalid: bool = False) -> list[str]:
        """Normalize the metadata of embedded resources; return paths of unknown metadata fields.

        See MET-004. Raise CoerceError with Go's text if apiVersion, kind, metadata or a field of metadata has a wrong
        type. With ``drop_invalid``, as for stored objects, delete the field instead (MET-002); ``metadata`` that is not
        an object stays unchanged.
        """
        return coerce.coerce(self.root, document, drop_invalid=drop_invalid)

    def default(self, document: Document, *, coerced: bool = True) -> bool:
        """Fill in defaults (NUL-002…004); return whether the document changed.

        If the document changed, keep only fields of ObjectMeta in the metadata of embedded resources (DEF-005),
        unless ``coerced`` is false. Raise OverBudget if the defaults exceed MAX_DEFAULTED bytes.
        """
        fill = defaulter(self.root, root=True)
        DEFAULTS.refill()
        changed = fill(document) if fill is not None else False
        if changed and coerced and coerce.applies_to(self.root):
            self.coerce_embedded(document, drop_invalid=True)
        return changed

    def normalize(self, document: Document, metadata: Sequence[str] = ()) -> list[str]:
        """Prune, drop nulls, coerce embedded resources and default a request body.

        Return the unknown paths. ``metadata`` are the paths of unknown fields that the caller has already deleted from
        the object's metadata. The result contains them only if the root is an embedded resource. Raise the errors of
        ``coerce_embedded`` and ``default``.
        """
        unknown = self.prune(document)
        self.drop_nulls(document)
        if coerce.applies_to(self.root):
            unknown += sorted([*self.coerce_embedded(document), *(metadata if self.root.extensions.embedded else ())])
        self.default(document)
        return unknown

    def from_storage(self, document: Document) -> bool:
        """Prune, drop nulls, repair embedded resources and default a stored object.

        See PRU-007, NUL-005. Return whether the object changed. If so, the caller must not send the stored bytes to
        clients. Also return True for an object with embedded resources that is too deep to be compared with its earlier
        state. Raise OverBudget as ``default`` does.
        """
        changed = bool(self.prune(document))
        changed = self.drop_nulls(document) or changed
        if coerce.applies_to(self.root):
            before = _json(document)
            self.coerce_embedded(document, drop_invalid=True)
            changed = changed or not before or _json(document) != before
        if self.default(document):
            self.drop_nulls(document)  # upstream: deletes nulls a second time, since defaults may contain nulls
            return True
        return changed

    def validate(self, new: View, old: View | None) -> list[FieldError]:
        """Return the errors of values, embedded resources and list types of an object.

        See VAL-001…012, MET-004. With ``old``, omit the errors of unchanged values (RAT-001), and the errors of list
        types if ``old`` has errors of list types, too (LST-003). This method does not validate the object's metadata,
        and evaluates no rules.
        """
        root = self.root
        refill()
        try:
            errors = [] if passes(root, new) else report.errors(root, new, link=_link(root, new, old))
        except OverBudget as over:
            return [FieldError(INVALID, "", f'Invalid value: "": {over}')]
        if self._plain is None:
            self._plain = not (coerce.applies_to(root) or list_types.applies_to(root))
        if not self._plain:
            errors = errors + self.structure_errors(new, old)
        return report.limited(errors) if errors else errors

    def structure_errors(self, new: View, old: View | None, *, embedded: bool = True) -> list[FieldError]:
        """Return only the errors of embedded resources and list types (MET-004, LST-001…003).

        If ``embedded`` is false, omit the errors of embedded resources.
        """
        errors = coerce.errors(self.root, new) if embedded and coerce.applies_to(self.root) else []
        return [*errors, *self._list_errors(new, old)]

    def rules(
        self, new: View, old: View | None, errors: Sequence[FieldError] = (), name: str = ""
    ) -> tuple[list[FieldError], list[str]]:
        """Evaluate the rules of the whole object; return (errors, warnings).

        The warnings are errors of unchanged values (RAT-003). ``errors`` are the errors that the caller has already
        found in the object. Errors of some kinds prevent the evaluation; then the result is one error that says so
        (CEL-015). ``name`` is the name of the definition, for the log.
        """
        scope = self._scope
        if scope is None:
            with deep_recursion():
                scope = scope_of(self.root)
            scope = self._scope = scope if scope is not None and scope.is_evaluated else False
        if not self.warm:
            with deep_recursion():
                self.growth = growth(self.root)
        if scope is False:
            self.warm = True
            return [], []
        if blocked(errors):
            return [not_checked()], []
        run = Run(link=None if old is None else Link(self.root, new, old))
        run.visit(scope, new, old)
        for rule, error in run.failed_messages:
            note("messageExpression evaluation failed", definition=name, rule=rule, error=error)
        self.warm = True
        return run.errors, run.warnings

    def validate_status(self, new: View, old: View | None) -> list[FieldError]:
        """Return the errors of a status write.

        These are errors of values in the status, and of list types in the whole object. Errors are omitted as by
        ``validate``.
        """
        root = self.root
        refill()
        errors: list[FieldError] = []
        node = root.properties.get("status")
        if node is not None and "status" in new and not _still_null(new, old):
            status = new["status"]
            try:
                if not passes(node, status):
                    link = _link(root, new, old)
                    below = link.member("status") if link is not None else None
                    errors = report.errors(node, status, "status", below)
            except OverBudget as over:
                return [FieldError(INVALID, "status", f'Invalid value: "": {over}')]
        return report.limited(errors + self._list_errors(new, old))

    def _list_errors(self, new: View, old: View | None) -> list[FieldError]:
        if not list_types.applies_to(self.root):
            return []
        found = list(as_many_as_shown(list_types.errors(self.root, new)))
        if found and old is not None and next(list_types.errors(self.root, old), None) is not None:
            return []  # LST-003: the stored object has errors of list types, too
        return found


def _still_null(new: View, old: View | None) -> bool:
    # upstream: a null status does not change an object without a status
    return new["status"] is None and old is not None and old.get("status") is None


def _link(node: Structural, new: View, old: View | None) -> Link | None:
    return Link(node, new, old) if old is not None else None


def _json(document: Document) -> bytes:
    """Return the document's JSON, or empty bytes if it has more levels than orjson supports."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return b""


def compile_schema(schema: Mapping[str, object] | None, *, preserve_unknown_fields: bool = False) -> CompiledSchema:
    """Return the compiled schema of one version; None stands for an empty schema (CRD-026)."""
    return CompiledSchema(schema, preserve_unknown_fields)
