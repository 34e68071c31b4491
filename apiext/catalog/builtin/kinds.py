"""Build served resources from the rows of built-in kinds.

A row describes one built-in kind; go_types/rows.py reads the rows. The types of a kind are loaded at its first use.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from apiext.catalog import endpoints
from apiext.catalog.builtin.functions import (
    REVIEW_VERBS,
    columns_of,
    function,
    labels_of,
    never_slow,
    slow_until_imported,
)
from apiext.catalog.builtin.rules import Validate, compile_rules, split_declared
from apiext.catalog.builtin.scales import builtin_scale
from apiext.catalog.compile import storage_version_hash
from apiext.catalog.merge_types import table_type
from apiext.catalog.selectable import selectable_fields
from apiext.catalog.served import (
    Codec,
    Column,
    Endpoint,
    Model,
    Names,
    Published,
    ServedResource,
    ServedVersion,
    Shaping,
    Traits,
    Validation,
    Work,
)
from apiext.catalog.typed import typed_codec
from apiext.documents.document import Document, View
from apiext.go_types import typed
from apiext.go_types.rows import STORED_VERBS, Row, rows
from apiext.go_types.tables import Types, types_of
from apiext.go_types.typed import Struct
from apiext.managedfields.fieldset import EMPTY
from apiext.managedfields.schemas import lazily
from apiext.meta import syntax
from apiext.meta.names import GroupResource

# Seconds after which an event expires: the default of --event-ttl, as in upstream.
EVENT_TTL = 3600

FIRST, LATER = "first", "later"
"""Values of ``generation`` in rows, besides true and false.

``first``: a create sets the generation to 1, and updates keep it. ``later``: a create keeps the generation of the
request body, and updates that change more than metadata add 1.
"""
Prepare = Callable[[Document, View | None], Document]
_drop = function("disabled_fields.drop")
Allocate = Callable[[Document, View | None, bool], Document]
"""(new, old, dry_run) → the new service with the missing addresses and ports allocated."""


class LazyMapping(Mapping[str, Any]):
    """A mapping that is built at its first use."""

    __slots__ = ("_built", "_make")

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make
        self._built: Mapping[str, Any] | None = None

    def _mapping(self) -> Mapping[str, Any]:
        if self._built is None:
            self._built = self._make()
        return self._built

    def __getitem__(self, key: str) -> Any:
        return self._mapping()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping())

    def __len__(self) -> int:
        return len(self._mapping())


class _Kind:
    """A row, and the types of its kind, which are loaded at their first use."""

    __slots__ = ("_root", "allocate", "read", "row")

    def __init__(self, row: Row, read: Callable[[str], Types], allocate: Allocate) -> None:
        self.row = row
        self.read = read
        self.allocate = allocate
        self._root: Struct | None = None

    @property
    def types(self) -> Types:
        return self.read(self.row.types)

    @property
    def root(self) -> Struct:
        if self._root is None:
            self._root = self.types.root(self.row.kind)
        return self._root

    def normalize(self, document: Document) -> tuple[Document, list[str]]:
        """Decode a body into the Go type and set defaults; return the object and the unknown fields.

        Raises DecodeError.
        """
        decoded, unknown = typed.decode(self.root, document)
        return self.complete(decoded), unknown

    def complete(self, document: Document) -> Document:
        """Set defaults in place and return the document."""
        self.types.default(self.row.kind, document)
        if self.row.writes.defaults:
            function(self.row.writes.defaults)(document)
        return document

    def recognized(self, document: View) -> Document:
        """Decode a stored document into the Go type and set defaults; raises DecodeError."""
        return self.complete(typed.decode(self.root, document)[0])

    def empty(self) -> Document:
        """Return an object with only apiVersion, kind, and the fields that Go always prints."""
        return {**typed.decode(self.root, {})[0], "apiVersion": self.row.api_version, "kind": self.row.kind}

    def schema(self) -> Document:
        """Return the OpenAPI schema of the kind."""
        return self.types.schema(self.row.kind)


def kinds(
    enabled: Callable[[str, bool], bool] = lambda _, default: default,
    event_ttl: int = EVENT_TTL,
    allocate: Allocate = lambda new, old, dry_run: new,
) -> list[ServedResource]:
    """Return the resources of all rows with at least one enabled API version.

    ``enabled(api_version, default)`` returns whether an API version, such as ``apps/v1``, is enabled. ``default`` is
    true if the version is enabled without flags. ``event_ttl`` is the time in seconds after which an event expires.
    ``allocate(new, old, dry_run)`` allocates the missing addresses and ports of a service.
    """
    found = [
        resource(row, event_ttl=event_ttl, allocate=allocate, served=served)
        for row in rows()
        if (served := [one for one in row.all_versions() if enabled(one.api_version, not one.published.on_request)])
    ]
    return _with_equivalents(found)


def _with_equivalents(found: list[ServedResource]) -> list[ServedResource]:
    """Set ``equivalents`` of resources whose objects several groups serve, such as events."""
    sharing: dict[GroupResource, list[ServedResource]] = {}
    for one in found:
        sharing.setdefault(one.stored_resource, []).append(one)
    return [_with_versions_of(one, sharing[one.stored_resource]) for one in found]


def _with_versions_of(one: ServedResource, sharing: list[ServedResource]) -> ServedResource:
    if len(sharing) == 1:
        return one
    others = [other for other in sharing if other is not one]
    return replace(one, equivalents=tuple(version for other in others for version in other.versions.values()))


def resource(
    row: Row,
    read: Callable[[str], Types] = types_of,
    event_ttl: int = EVENT_TTL,
    allocate: Allocate = lambda new, old, dry_run: new,
    served: Sequence[Row] = (),
) -> ServedResource:
    """Return the resource of a row; ``read(file)`` loads its types at their first use.

    ``served`` are the versions to serve, from ``Row.all_versions``; empty means all versions.
    """
    every = {one.version: _version(_Kind(one, read, allocate)) for one in row.all_versions()}
    versions = {one.version: every[one.version] for one in served or row.all_versions()}
    return ServedResource(
        row.group,
        row.resource,
        row.namespaced,
        versions,
        row.version,
        builtin=True,
        all_versions=every,
        stored_as=every[row.version].names.stored_as,
        review=bool(row.review),
        cached=not row.storage.uncached,
        ttl=event_ttl if row.storage.expires else 0,
    )


def _version(kind: _Kind) -> ServedVersion:
    row = kind.row
    published, writes, same_as = row.published, row.writes, row.storage.same_as
    verbs = REVIEW_VERBS if row.review else published.verbs
    labels = {} if row.review else selectable_fields((), namespaced=row.namespaced and published.select_namespace)
    stored_as = GroupResource(same_as.group, same_as.resource) if same_as else None
    model = _model(kind, columns_of(row))
    return ServedVersion(
        Names(row.group, row.version, row.resource, row.kind, f"{row.kind}List", row.namespaced, stored_as),
        model,
        _codec(row, kind),
        _endpoints(kind, model, verbs),
        Shaping(
            complete=lambda document: kind.normalize(document)[0],
            **({"named": function(writes.named)} if writes.named else {}),
        ),
        _validation(row),
        Published(
            singular=row.kind.lower(),
            short_names=published.short,
            categories=published.category,
            verbs=verbs,
            deprecation_warning=published.deprecation,
            storage_version_hash=_storage_hash(row),
            selectable={**labels, **labels_of(row)},
            unselectable=published.unselectable,
        ),
        Traits(
            unconditional=writes.unconditional,
            upserts=writes.upserts,
            returns_deleted=writes.returns_deleted,
            uncollected=row.storage.expires or same_as is not None,
        ),
        Work(slow=slow_until_imported(row.validation.validate) if row.validation.validate else never_slow),
    )


def _model(kind: _Kind, columns: tuple[Column, ...] = ()) -> Model:
    return Model(
        kind.row.api_version,
        kind.row.kind,
        kind.normalize,
        typed=True,
        columns=columns,
        schema=kind.schema,
        merge_type=lazily(lambda: table_type(kind.types, kind.row.kind)),
        empty=LazyMapping(kind.empty),
        merge_keys=LazyMapping(lambda: kind.types.merge_keys(kind.row.kind)),
    )


def _storage_hash(row: Row) -> str:
    if row.review or STORED_VERBS[0] not in row.published.verbs:
        return ""
    same_as = row.storage.same_as
    if same_as:
        return storage_version_hash(same_as.group, same_as.version, row.kind)
    return storage_version_hash(row.group, row.storage.version or row.version, row.kind)


def _validation(row: Row) -> Validation:
    main, status = row.validation, row.status
    hooks: dict[str, Any] = {
        "validate": _validate(row.kind, main.rules, main.validate),
        "validate_status": status.validate and function(status.validate),
        "warnings": main.warnings and function(main.warnings),
        "warnings_status": status.warnings and function(status.warnings),
        "metadata": main.finalizers and function("core.finalizer_errors"),
    }
    return Validation(names=getattr(syntax, main.names), **{name: hook for name, hook in hooks.items() if hook})


def _validate(kind: str, rules: Sequence[Mapping[str, Any]], validate: str) -> Validate | None:
    """Return the validation of a kind: its rules, then its function, then its declared rules.

    Return None if the row has none of them.
    """
    first, last = split_declared(rules)
    parts: list[Validate] = [compile_rules(kind, first)] if first else []
    if validate:
        parts.append(function(validate))
    if last:
        parts.append(compile_rules(kind, last))
    if len(parts) < 2:
        return parts[0] if parts else None
    return lambda new, old: [error for part in parts for error in part(new, old)]


def _codec(row: Row, kind: _Kind) -> Codec:
    storage = row.storage
    if storage.shown:
        show = function(storage.shown)
        return typed_codec(
            row.api_version,
            row.kind,
            read=lambda stored: kind.recognized(show(stored)),
            own=show,
            write=function(storage.restored),
            same=False,
        )
    if storage.same_as is None:
        write = function(storage.form) if storage.form else dict
        same = storage.version in ("", row.version)
        return typed_codec(
            row.api_version,
            row.kind,
            read=kind.recognized,
            own=dict,
            write=write if same else _renaming(row),
            same=same,
        )
    renamed = storage.same_as.renamed
    there = {"apiVersion": storage.same_as.version, "kind": row.kind}
    back = {stored: own for own, stored in renamed.items()}
    return typed_codec(
        row.api_version,
        row.kind,
        read=lambda stored: kind.recognized({back.get(name, name): value for name, value in stored.items()}),
        own=lambda stored: {back.get(name, name): value for name, value in stored.items()},
        write=lambda document: {renamed.get(name, name): value for name, value in document.items()} | there,
        same=False,
    )


def _renaming(row: Row) -> Callable[[View], Document]:
    """Return the function that stores an object in another version with the same fields."""
    stored = f"{row.group}/{row.storage.version}"
    return lambda document: {**document, "apiVersion": stored}


# --- endpoints ---


def _endpoints(kind: _Kind, model: Model, verbs: tuple[str, ...]) -> Mapping[str, Endpoint]:
    row, writes = kind.row, kind.row.writes
    main = endpoints.main(model, row.status.served, verbs)
    if writes.resets:
        main = replace(main, reset={**main.reset, **{f"f:{part}": EMPTY for part in writes.resets}})
    prepare = _main(kind, main.prepare)
    preview = _main(kind, main.prepare, dry_run=True) if writes.addressed else None
    sign = function(writes.signed) if writes.signed else None
    found = {
        "": replace(
            main,
            prepare=prepare,
            preview=preview,
            review=row.review,
            metadata_checks=row.validation.metadata_checks,
            sign=sign,
        )
    }
    if row.status.served:
        status = endpoints.status(model)
        found["status"] = replace(
            status,
            prepare=_status(row, status.prepare),
            reset={"f:spec": EMPTY} if row.status.metadata else status.reset,
            metadata_checks=row.status.metadata_checks,
            stamp=function(row.status.stamp) if row.status.stamp else None,
        )
    if row.scale:
        found["scale"] = builtin_scale(row.scale, prepare)
    for subresource in row.subresources:
        if "connects" in subresource:
            found[subresource["name"]] = _connecting(main, subresource)
            continue
        if "prepare" in subresource:
            found[subresource["name"]] = _part(row, model, subresource)
            continue
        accepted = Row(version="v1", resource=subresource["name"], namespaced=row.namespaced, **subresource["accepts"])
        shown = _Kind(accepted, kind.read, kind.allocate)
        found[subresource["name"]] = replace(
            main,
            name=subresource["name"],
            verbs=REVIEW_VERBS,
            model=_model(shown),
            partial=True,
            review=accepted.review,
        )
    return found


def _connecting(main: Endpoint, subresource: Mapping[str, Any]) -> Endpoint:
    """Return an endpoint such as pods/exec.

    Upstream forwards the requests for such an endpoint to a node, a pod or a service.
    """
    model = replace(main.model, kind=subresource["kind"]) if "kind" in subresource else main.model
    return replace(
        main, name=subresource["name"], verbs=tuple(subresource["verbs"]), model=model, connects=subresource["connects"]
    )


def _part(row: Row, model: Model, subresource: Mapping[str, Any]) -> Endpoint:
    """Return an endpoint that changes a part of an object, such as pods/resize."""
    change = function(subresource["prepare"])

    def prepare(new: Document, old: View | None) -> Document:
        assert old is not None, "the endpoint has no create"
        if row.writes.drops:
            _drop(row.writes.drops, new, old)
        found: Document = change(new, old)
        kept = old["metadata"].get("generation")
        if row.writes.generation:
            kept = (kept or 0) + (not endpoints.same_content(found, old))
        _set_generation(found["metadata"], kept)
        return found

    return replace(
        endpoints.status(model),
        name=subresource["name"],
        prepare=prepare,
        reset={f"f:{part}": EMPTY for part in subresource.get("resets", ())},
        metadata_checks=row.validation.metadata_checks,
        validate=function(subresource["validate"]),
        stamp=function(subresource["stamp"]) if "stamp" in subresource else None,
    )


def _main(kind: _Kind, inner: Prepare, *, dry_run: bool = False) -> Prepare:
    row, writes = kind.row, kind.row.writes

    def prepare(new: Document, old: View | None) -> Document:
        given, status = (new.get("metadata") or {}).get("generation"), new.get("status")
        if writes.drops:
            _drop(writes.drops, new, old)
        new = inner(new, old)
        if writes.keeps_status and old is None and status is not None:
            new["status"] = status
        counted = writes.generation
        if not counted or (counted == FIRST and old is not None) or (counted == LATER and old is None):
            _set_generation(new["metadata"], given)
        elif old is not None and _counts(writes.counts, new["metadata"], old["metadata"]):
            new["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1
        if writes.prepare:
            new = function(writes.prepare)(new, old)
        if writes.addressed:
            new = kind.allocate(new, old, dry_run)
        if row.status.served:
            new.setdefault("status", kind.empty()["status"])  # Go always prints the status
        return new

    return prepare


def _status(row: Row, inner: Prepare) -> Prepare:
    status, drops = row.status, row.writes.drops

    def prepare(new: Document, old: View | None) -> Document:
        if drops:
            _drop(drops, new, old)
        found = inner(new, old)
        found["metadata"] = new["metadata"] if status.metadata else _reset(new["metadata"], found["metadata"])
        return function(status.prepare)(found, old) if status.prepare else found

    return prepare


def _reset(metadata: View, kept: View) -> Document:
    """Return the metadata for a write of the status, with the stored ``_KEPT_BY_STATUS`` fields.

    Upstream: metav1.ResetObjectMetaForStatus. The other fields keep the values of the write, and are validated.
    """
    rest = {name: value for name, value in metadata.items() if name not in _KEPT_BY_STATUS}
    return rest | {name: kept[name] for name in _KEPT_BY_STATUS if name in kept}


_KEPT_BY_STATUS = ("deletionTimestamp", "labels", "annotations", "finalizers", "ownerReferences")


def _counts(parts: Sequence[str], new: View, old: View) -> bool:
    """Report whether any of these metadata fields has changed."""
    return any((new.get(part) or {}) != (old.get(part) or {}) for part in parts)


def _set_generation(metadata: Document, given: int | None) -> None:
    """Set the generation, or remove it for None.

    Upstream counts the generation only for some kinds; objects of other kinds keep the value of the create.
    """
    metadata.pop("generation", None)
    if given is not None:
        metadata["generation"] = given
