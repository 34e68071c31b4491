"""A schema made ready for use: what happens to the objects of one version of a definition."""

from collections.abc import Mapping, Sequence
from typing import Literal

import orjson

from apiext.documents.document import Document, View
from apiext.logs import note
from apiext.meta.fields import INVALID, FieldError, as_many_as_told
from apiext.schema import coerce, list_types, report
from apiext.schema.budget import DEFAULTS, OverBudget, refill
from apiext.schema.deeply import deeply
from apiext.schema.default import defaulter, growth
from apiext.schema.nulls import null_dropper
from apiext.schema.parse import parse
from apiext.schema.prune import pruner, sorted_paths
from apiext.schema.ratchet import Link
from apiext.schema.rules import Run, Scope, blocked, not_checked, scope_of
from apiext.schema.settled import Test, settled, unsettled
from apiext.schema.structural import Structural
from apiext.schema.validate import passes


class CompiledSchema:
    """The schema of one version; the structural form and each function are made at their first use.

    Functions that change a document do so in place. ``preserve_unknown_fields`` is the legacy field of the definition:
    nothing is pruned then (PRU-006, B1-007). ``warm`` tells that an object was judged before, rules included.
    ``readable`` tells that a stored object can be read without compiling anything. ``settled(document)`` tells that
    ``prune``, ``drop_nulls`` and ``coerce_embedded`` plainly find nothing to do, and that no float is outside metadata;
    False means that one has to look closer, as always before it is compiled.
    ``growth`` is the most bytes of defaults that one list item or map value gets, known once it is warm.
    """

    __slots__ = (
        "_plain",
        "_root",
        "_scope",
        "_source",
        "growth",
        "preserve_unknown_fields",
        "readable",
        "settled",
        "warm",
    )

    def __init__(self, schema: View | None, preserve_unknown_fields: bool) -> None:
        self.preserve_unknown_fields = preserve_unknown_fields
        self.warm = False
        self.readable = False
        self.growth = 0
        self.settled: Test = unsettled
        self._root: Structural | None = None
        self._scope: Scope | Literal[False] | None = None  # False: there are no rules
        self._source: View | None = schema or {}
        self._plain: bool | None = None  # whether there is neither an embedded resource nor a list of its own kind

    @property
    def root(self) -> Structural:
        """The structural form of the schema."""
        if self._root is None:
            source = self._source
            with deeply():
                # a thread may have been faster, and then the source is gone
                self._root = self._root or parse(source if source is not None else {})
            self._source = None
        return self._root

    def prepare(self, *, quickly: bool = False) -> None:
        """Compile what reading a stored object takes; and with ``quickly`` the test that spares most of it."""
        root = self.root
        if quickly and not self.preserve_unknown_fields and not coerce.matters(root):
            self.settled = settled(root, root=True)
        coerce.matters(root)
        pruner(root, root=True)
        null_dropper(root, root=True)
        defaulter(root, root=True)
        self.readable = True

    @property
    def coerces(self) -> bool:
        """Whether there is an embedded resource: its metadata are not only looked at by the schema."""
        return coerce.matters(self.root)

    def prune(self, document: Document) -> list[str]:
        """Remove unknown fields and return their paths, sorted; metadata is left alone (PRU rows)."""
        if self.preserve_unknown_fields:
            return []
        return sorted_paths(pruner(self.root, root=True)(document))

    def drop_nulls(self, document: Document) -> bool:
        """Remove nulls that are neither allowed nor defaulted (NUL-001); return whether there were any."""
        drop = None if self.preserve_unknown_fields else null_dropper(self.root, root=True)
        return drop(document) if drop is not None else False

    def coerce_embedded(self, document: Document, *, drop_invalid: bool = False) -> list[str]:
        """Bring the metadata of embedded resources into form and return paths of unknown metadata fields (MET-004).

        ValueError with Go's text when apiVersion, kind or metadata have a wrong type; with ``drop_invalid``, as on
        read from storage, such fields are dropped instead (MET-002).
        """
        return coerce.coerce(self.root, document, drop_invalid=drop_invalid)

    def default(self, document: Document, *, coerced: bool = True) -> bool:
        """Fill in defaults (NUL-002…004); return whether any were missing. OverBudget when they are too many bytes.

        In metadata of an embedded resource only what metadata has is kept (DEF-005), unless nothing is ``coerced``.
        """
        fill = defaulter(self.root, root=True)
        DEFAULTS.refill()
        changed = fill(document) if fill is not None else False
        if changed and coerced and coerce.matters(self.root):
            self.coerce_embedded(document, drop_invalid=True)
        return changed

    def normalize(self, document: Document, metadata: Sequence[str] = ()) -> list[str]:
        """Prune, drop nulls, coerce embedded resources and default a request body; return unknown paths, sorted.

        ``metadata``: unknown paths that have left the object's metadata, which a root that is an embedded resource
        would find again. ValueError as ``coerce_embedded`` and ``default`` raise it.
        """
        unknown = self.prune(document)
        self.drop_nulls(document)
        if coerce.matters(self.root):
            unknown += sorted([*self.coerce_embedded(document), *(metadata if self.root.embedded else ())])
        self.default(document)
        return unknown

    def from_storage(self, document: Document) -> bool:
        """Prune, drop nulls, repair embedded resources and default a stored object (PRU-007, NUL-005).

        Returns whether anything changed, that is whether the stored bytes are not what a client sees.
        """
        changed = bool(self.prune(document))
        changed = self.drop_nulls(document) or changed
        if coerce.matters(self.root):
            before = _json(document)
            self.coerce_embedded(document, drop_invalid=True)
            changed = changed or not before or _json(document) != before
        if self.default(document):
            self.drop_nulls(document)  # upstream: once more, for defaults may hold nulls
            return True
        return changed

    def validate(self, new: View, old: View | None) -> list[FieldError]:
        """Return what is wrong with an object: values, embedded resources, list types (VAL, MET-004, LST rows).

        With ``old``, errors of unchanged values are dropped (RAT rows). Metadata and rules are checked elsewhere.
        """
        root = self.root
        refill()
        try:
            errors = [] if passes(root, new) else report.errors(root, new, link=_link(root, new, old))
        except OverBudget as over:
            return [FieldError(INVALID, "", f'Invalid value: "": {over}')]
        if self._plain is None:
            self._plain = not (coerce.matters(root) or list_types.matters(root))
        if not self._plain:
            errors = errors + self.structure_errors(new, old)
        return report.limited(errors) if errors else errors

    def structure_errors(self, new: View, old: View | None, *, embedded: bool = True) -> list[FieldError]:
        """Return what is wrong with embedded resources and lists alone (MET-004, LST rows)."""
        errors = coerce.errors(self.root, new) if embedded and coerce.matters(self.root) else []
        return [*errors, *self._list_errors(new, old)]

    def rules(
        self, new: View, old: View | None, errors: Sequence[FieldError] = (), name: str = ""
    ) -> tuple[list[FieldError], list[str]]:
        """Evaluate the rules of the whole object (CEL rows): what is wrong, and what is only worth a warning (RAT-003).

        ``errors`` are all others of the object; some of them keep rules from being evaluated (CEL-015). ``name`` is
        that of the definition, for the log.
        """
        scope = self._scope
        if scope is None:
            with deeply():
                scope = scope_of(self.root)
            scope = self._scope = scope if scope is not None and scope.judges else False
        if not self.warm:
            with deeply():
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
        """Return what is wrong with an object written through its status: values of the status, list types."""
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
        if not list_types.matters(self.root):
            return []
        found = list(as_many_as_told(list_types.errors(self.root, new)))
        if found and old is not None and next(list_types.errors(self.root, old), None) is not None:
            return []  # LST-003
        return found


def _still_null(new: View, old: View | None) -> bool:
    # upstream: a null where no status was is no change
    return new["status"] is None and old is not None and old.get("status") is None


def _link(node: Structural, new: View, old: View | None) -> Link | None:
    return Link(node, new, old) if old is not None else None


def _json(document: Document) -> bytes:
    """Return the document's JSON, or nothing when it is nested deeper than orjson goes."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return b""


def compile_schema(schema: Mapping[str, object] | None, *, preserve_unknown_fields: bool = False) -> CompiledSchema:
    """Return the schema of one version, ready for use; None is the schema that knows no fields (CRD-026)."""
    return CompiledSchema(schema, preserve_unknown_fields)
