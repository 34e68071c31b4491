"""Frozen values of the served API: endpoint, version, resource and catalog.

LiveCatalog holds the current catalog.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from apiext.catalog import limits
from apiext.catalog.frozen_map import FrozenMap
from apiext.catalog.stored import Unreadable
from apiext.documents.document import Document, View
from apiext.managedfields.fieldset import EMPTY, FieldSet
from apiext.managedfields.schemas import merge_type
from apiext.managedfields.types import Type
from apiext.meta.fields import FieldError
from apiext.meta.names import GroupKind, GroupResource, sort_versions
from apiext.meta.objectmeta import CHANGE
from apiext.meta.syntax import dns1123_subdomain
from apiext.meta.time import Ages

T = TypeVar("T")

ALL_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
TERMINATING_VERBS = ("delete", "deletecollection", "get", "list", "watch")

Reshape = Callable[[Document], Document]


def _same(document: Document) -> Document:
    return document


# caches: each request needs several of these names, and creating a name is slow
_group_resource = lru_cache(limits.NAMES_SEEN)(GroupResource)
_group_kind = lru_cache(limits.NAMES_SEEN)(GroupKind)


class Column(Struct, frozen=True, eq=False):
    """A Table column: its definition, and the function that returns the cell of an object.

    See TAB-002, TAB-003. With ``shows_age``, ``cell`` returns the RFC 3339 time at which the age begins, or None. It
    may also return a pair: a text with ``{}`` in place of the age, and the time or None. Such a cell depends on the
    clock, so ``Ages`` records until when the printed age is valid.
    """

    name: str
    type: str
    format: str = ""
    description: str = ""
    priority: int = 0
    cell: Callable[[View], Any] = lambda _: None
    shows_age: bool = False

    def shown(self, ages: Ages) -> Callable[[View], Any]:
        """Return the function that returns the cell of an object, with the age that ``ages`` prints."""
        find, of = self.cell, ages.of
        if not self.shows_age:
            return find

        def cell(document: View) -> Any:
            stamp = find(document)
            if stamp.__class__ is tuple:
                text, stamp = stamp
                return text if stamp is None else text.format(of(stamp))
            return stamp if stamp is None else of(stamp)

        return cell


class Model(Struct, frozen=True, eq=False):
    """The kind of the objects at an endpoint.

    - ``typed``: upstream has a Go type for this kind. A body may lack apiVersion and kind, and may be protobuf.
      Strategic merge patches are supported.
    - ``normalize(document)`` prunes, coerces and defaults a request body. It returns the document and the paths of
      unknown fields. It raises ValueError with Go's message for a body that cannot be decoded as this kind.
    - ``custom_decoded(document)`` returns the paths of values that have their own decoder in Go; upstream does not
      report duplicate fields in these values.
    - ``merge_type()`` returns the merge type for server-side apply. ``empty`` is an object with only its type
      and the fields that Go always prints.
    - ``owns_items()`` reports whether the schema may have a list whose items have different field managers (list type
      map or set). It is true while the schema is not compiled.
    - ``merge_keys`` is path of a list → the key by which a strategic merge patch merges its items; see
      ``documents/strategic_merge.py``.
    - ``schema()`` returns the OpenAPI schema; it reads the schema at each call, to save memory.
    """

    api_version: str
    kind: str
    normalize: Callable[[Document], tuple[Document, list[str]]]
    typed: bool = False
    columns: tuple[Column, ...] = ()
    schema: Callable[[], View | None] = lambda: None
    merge_type: Callable[[], Type] = lambda: merge_type(None)
    empty: View = {}
    owns_items: Callable[[], bool] = lambda: True
    merge_keys: Mapping[str, str] = {}
    custom_decoded: Callable[[View], Sequence[str]] = lambda document: ()

    @property
    def group(self) -> str:
        """The API group of the kind."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version of the kind, without its group."""
        return self.api_version.rpartition("/")[2]

    @property
    def open_api(self) -> View | None:
        """The OpenAPI schema, read again at each use.

        None if the stored definition can no longer be read.
        """
        try:
            return self.schema()
        except Unreadable:
            return None


class Endpoint(Struct, frozen=True):
    """One endpoint: the object that clients read and write, and its relation to stored objects.

    - ``model``: the kind of the objects at the endpoint; ``partial``: this kind differs from the kind of the resource.
    - ``project(stored)`` returns the object that clients of the endpoint see. ``embed(existing, shown)`` returns the
      stored object with the changes that a client made; it raises ValueError with the message for a 400.
    - ``prepare(new, old)`` undoes changes that this endpoint does not allow, and sets the generation; ``old`` is None
      on create. A dry run calls ``preview`` instead, unless this is None.
    - ``unreadable(stored)`` returns the message of the 500 for a get, empty if a get can return the object.
    - ``reset``: paths that no manager owns after a write to this endpoint (SSA-013). ``replicas``: path of the field
      that a scale endpoint writes.
    - ``review``: the name of a function in ``verbs/reviews.py`` that answers a create, for kinds that are not stored,
      such as TokenReview; else empty.
    - ``metadata_checks``: the checks of the kind that ``objectmeta.validate_update`` runs for changed metadata, after
      the checks of all kinds. For kinds without such checks, a create validates the metadata last, and only if the
      other fields are valid.
    - ``sign(document, name, uid, groups, extra)`` writes the requesting user into a new object.
    - ``stamp(new, old, now)`` sets times in an update.
    - ``validate(new, old)`` replaces the validation of the kind.
    - ``connects``: the name of a function in ``verbs/connects.py`` that answers requests which upstream would forward
      to a node, a pod or a service.
    """

    name: str
    verbs: tuple[str, ...]
    model: Model
    project: Callable[[View], View]
    embed: Callable[[View, View], Document]
    prepare: Callable[[Document, View | None], Document]
    partial: bool = False
    unreadable: Callable[[View], str] = lambda stored: ""
    reset: FieldSet = field(default_factory=lambda: EMPTY)
    replicas: tuple[str, ...] = ()
    review: str = ""
    metadata_checks: tuple[str, ...] = (CHANGE,)
    preview: Callable[[Document, View | None], Document] | None = None
    sign: Callable[[Document, str, str, Sequence[str], View], None] | None = None
    stamp: Callable[[Document, View, str], None] | None = None
    validate: Callable[[View, View | None], list[FieldError]] | None = None
    connects: str = ""

    def prepared(self, new: Document, old: View | None, dry_run: bool) -> Document:
        """Return ``prepare(new, old)``; for a dry run, return ``preview(new, old)`` if it is set."""
        make = self.preview if dry_run and self.preview is not None else self.prepare
        return make(new, old)


class Names(Struct, frozen=True):
    """The names of a version of a resource in URLs, in the store, and in error messages.

    ``stored_as`` is the resource under which the objects are stored, None for the resource itself. ``__post_init__``
    computes the fields after ``stored_as``.
    """

    group: str
    version: str
    resource: str
    kind: str
    list_kind: str
    namespaced: bool
    stored_as: GroupResource | None = None
    api_version: str = ""
    group_resource: GroupResource = GroupResource("", "")
    stored_resource: GroupResource = GroupResource("", "")
    group_kind: GroupKind = GroupKind("", "")
    stored_kind: GroupKind = GroupKind("", "")  # the kind in validation errors, as upstream

    def __post_init__(self) -> None:
        resource = _group_resource(self.group, self.resource)
        force_setattr(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        force_setattr(self, "group_resource", resource)
        force_setattr(self, "stored_resource", self.stored_as or resource)
        force_setattr(self, "group_kind", _group_kind(self.group, self.kind))
        force_setattr(self, "stored_kind", _group_kind(self.stored_resource.group, self.kind))


class Codec(Struct, frozen=True):
    """Converts between stored bytes and the objects of a version.

    - ``view(raw, revision)`` returns the JSON for clients, without a newline. ``decode(raw, revision)`` returns the
      same object as a document. ``encode(document)`` returns the bytes to store. ``to_store(document)`` is a faster
      ``encode`` for documents whose metadata comes from ``decode`` or ``normalize``.
    - ``converts``: ``view``, ``decode``, ``encode`` and ``to_store`` may raise NeedsConversion.
    - ``encode_as_is(document)`` never raises NeedsConversion: it returns the bytes of a document in this version, even
      if this is not the storage version. If it is None, ``encode`` does the same.
    - ``decode_metadata(raw, revision)`` returns the metadata that ``decode`` returns, without managedFields. If it
      returns None, the caller must use ``decode``.
    - ``is_normalized(raw)`` reports that ``normalize`` would not change the decoded object; False means "unknown".
    - ``evict(raw)`` evicts cached data about bytes that are no longer stored.
    """

    view: Callable[[bytes, int], bytes]
    decode: Callable[[bytes, int], Document]
    encode: Callable[[Document], bytes]
    to_store: Callable[[Document], bytes]
    evict: Callable[[bytes], None] = lambda raw: None
    encode_as_is: Callable[[Document], bytes] | None = None
    decode_metadata: Callable[[bytes, int], Document | None] = lambda raw, revision: None
    is_normalized: Callable[[bytes], bool] = lambda raw: False
    converts: bool = False

    def as_is(self) -> "Codec":
        """Return a codec that stores documents in this version without the conversion webhook."""
        if self.encode_as_is is None:
            return self
        return replace(self, encode=self.encode_as_is, to_store=self.encode_as_is, converts=False)


class Shaping(Struct, frozen=True):
    """Normalization of documents that are not request bodies.

    Each function may change its argument. ``accept`` prunes and coerces an object that no decoder has pruned, such as
    the result of an apply. ``settle`` prunes and coerces the result of admission policies, but keeps nulls.
    ``complete`` sets the defaults of an object that an apply, a write of a Scale or an admission policy has changed.
    ``named`` sets fields that depend on a generated name. ``internal`` returns an object as upstream's internal version
    represents it; managed fields are computed from this form.
    """

    accept: Reshape = _same
    settle: Reshape = _same
    complete: Reshape = _same
    named: Reshape = _same
    internal: Reshape = _same


class Validation(Struct, frozen=True):
    """Validation of a new or changed object; ``old`` is None on create.

    ``structure(new, old, endpoint)`` is a part of ``validate``. It runs instead of ``validate`` if the new object does
    not have the apiVersion and kind of the endpoint. ``rules(new, old, errors)`` evaluates CEL rules after all other
    validation; ``errors`` are the errors so far. It returns (further errors, warnings). ``names(name)`` returns the
    errors of a name. ``metadata`` is additional validation of the metadata of this kind.
    """

    validate: Callable[[View, View | None], list[FieldError]] = lambda new, old: []
    validate_status: Callable[[View, View | None], list[FieldError]] = lambda new, old: []
    structure: Callable[[View, View | None, str], list[FieldError]] = lambda new, old, endpoint: []
    rules: Callable[[View, View | None, Sequence[FieldError]], tuple[list[FieldError], list[str]]] = (
        lambda new, old, errors: ([], [])
    )
    warnings: Callable[[View, View | None], list[str]] = lambda new, old: []
    warnings_status: Callable[[View, View | None], list[str]] = lambda new, old: []
    names: Callable[[str], list[str]] = dns1123_subdomain
    metadata: Callable[[View], list[FieldError]] | None = None


class Published(Struct, frozen=True):
    """Facts of a version for discovery and OpenAPI, and the labels of its field selectors.

    ``preserve``: spec.preserveUnknownFields of the definition is true, so the server prunes nothing. ``selectable`` is
    field label → the function that returns the field's value in an object. ``unselectable`` is the error text for other
    labels.
    """

    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    deprecation_warning: str = ""
    storage_version_hash: str = ""
    preserve: bool = False
    selectable: Mapping[str, Callable[[View], str]] = {}
    unselectable: str = "field label not supported: {label}"


class Traits(Struct, frozen=True):
    """Differences between the writes of built-in kinds.

    ``unconditional``: a PUT without resourceVersion replaces any stored object (upstream's core kinds). ``upserts``: a
    PUT creates a missing object. ``returns_deleted``: a delete returns the object, not a Status. ``uncollected``: a
    delete ignores the propagation policy, as for events.
    """

    unconditional: bool = False
    upserts: bool = False
    returns_deleted: bool = False
    uncollected: bool = False


class Work(Struct, frozen=True):
    """Predictions that decide which work on objects of a version runs in a thread.

    ``cold()`` reports whether the next read of an object takes long, because it must compile the schema; ``prepare()``
    compiles the schema. ``slow(size)`` reports whether work on an object of this size in bytes may take long.
    ``report(size, long)`` records whether such work took long, for later calls of ``slow``.
    """

    cold: Callable[[], bool] = lambda: False
    prepare: Callable[[], object] = lambda: None
    slow: Callable[[int], bool] = lambda size: False
    report: Callable[[int, bool], None] = lambda size, long: None


class ServedVersion(Struct, frozen=True, eq=False, weakref=True):
    """One version of a resource: values and functions for all reads and writes of its objects.

    When ``identity`` changes, the server ends the open watches of the version.
    """

    names: Names
    model: Model
    codec: Codec
    endpoints: Mapping[str, Endpoint]
    shaping: Shaping = Shaping()
    validation: Validation = Validation()
    published: Published = Published()
    traits: Traits = Traits()
    work: Work = Work()
    identity: str = ""

    def as_is(self) -> "ServedVersion":
        """Return this version with a codec that stores objects in it without conversion webhook."""
        return replace(self, codec=self.codec.as_is())


class DefinitionState(Struct, frozen=True, eq=False):
    """The state of the definition of a resource; built-in kinds have the defaults.

    - ``guard_key``: a key in the store that belongs to the definition. Each put of a custom object succeeds only if the
      key has the revision ``guard_revision`` (decisions/0010). Built-in kinds have no guard key.
    - ``identity`` changes with the uid, the accepted names, and the spec without its names and descriptions.
      ``content`` changes with the uid, the accepted names and the whole spec; it is empty if it is unknown.
    - ``conversion``: the settings of the conversion webhook in v1 form, None without a webhook. ``unusable``: the CA
      bundle of the webhook is invalid, so each request returns a 500.
    """

    uid: str = ""
    generation: int = 0
    established: bool = True
    terminating: bool = False
    guard_key: str = ""
    guard_revision: int = 0
    identity: str = ""
    content: str = ""
    conversion: View | None = None
    unusable: bool = False


class ServedResource(Struct, frozen=True, eq=False):
    """A resource: its served versions by name, and the state of its definition.

    - ``all_versions`` also has the versions that are not served, since objects may be stored in them.
    - ``stored_as``: the resource under which the store has the objects, None for the resource itself. ``equivalents``:
      the versions of other groups that show the same objects.
    - ``review``: objects are never stored; a function answers a create.
    - ``ttl``: seconds between the last write and the expiry of an object, 0 for objects that never expire.
    - ``cached``: reads may use the cache, and may wait until the cache reaches a revision. False for kinds without a
      cache in upstream: all their reads use the store.
    """

    group: str
    resource: str
    namespaced: bool
    versions: Mapping[str, ServedVersion]
    storage_version: str
    definition: DefinitionState = DefinitionState()
    builtin: bool = False
    all_versions: Mapping[str, ServedVersion] = field(default_factory=dict)
    stored_as: GroupResource | None = None
    equivalents: tuple[ServedVersion, ...] = ()
    review: bool = False
    ttl: int = 0
    cached: bool = True

    @property
    def stored_resource(self) -> GroupResource:
        """The resource under which the store has the objects."""
        return self.stored_as or self.group_resource

    @property
    def stores_objects(self) -> bool:
        """True if objects are stored under the name of this resource.

        False for reviews, and for a resource that shows the stored objects of another resource.
        """
        return self.stored_as is None and not self.review

    @property
    def group_resource(self) -> GroupResource:
        """Group and resource, as in keys of the store and in error messages."""
        return _group_resource(self.group, self.resource)

    def evict(self, raw: bytes) -> None:
        """Evict the cached data of all versions about bytes that are no longer stored."""
        for version in (self.all_versions or self.versions).values():
            version.codec.evict(raw)

    @property
    def storage(self) -> ServedVersion | None:
        """The storage version, None if this version is not served."""
        return self.versions.get(self.storage_version)


class Catalog(Struct, frozen=True, eq=False):
    """All served resources. ``number`` grows with each change that discovery or OpenAPI shows.

    ``builtin_groups`` are the groups of built-in kinds.
    """

    resources: FrozenMap[tuple[str, str], ServedResource] = field(default_factory=FrozenMap)
    number: int = 0
    builtin_groups: frozenset[str] = frozenset()
    _cache: dict[str, Any] = field(default_factory=dict)  # key → the result of compute_once

    def resource(self, group: str, resource: str) -> ServedResource | None:
        """Return a resource with all its versions, None if the catalog does not have it."""
        return self.resources.get((group, resource))

    def lookup(self, group: str, version: str, resource: str) -> ServedVersion | None:
        """Return the served version of a resource, None if the catalog does not have it."""
        found = self.resources.get((group, resource))
        return found.versions.get(version) if found is not None else None

    def with_resource(self, served: ServedResource) -> "Catalog":
        """Return a catalog in which this resource is added or replaced."""
        resources = self.resources.put((served.group, served.resource), served)
        own = self.builtin_groups | {served.group} if served.builtin else self.builtin_groups
        return Catalog(resources, self.number + 1, own)

    def with_state(self, served: ServedResource) -> "Catalog":
        """Return a catalog in which a resource is replaced; keep number and computed documents.

        Call it only if discovery and OpenAPI show the old and the new resource in the same way.
        """
        return replace(self, resources=self.resources.put((served.group, served.resource), served))

    def without_resource(self, group: str, resource: str) -> "Catalog":
        """Return a catalog without this resource, which must not be a built-in kind."""
        return Catalog(self.resources.without((group, resource)), self.number + 1, self.builtin_groups)

    def groups(self) -> dict[str, list[str]]:
        """Return group → its versions, preferred version first, for all established resources.

        See DIS-104.
        """
        found: dict[str, set[str]] = {}
        for (group, _), served in self.resources.items():
            if served.definition.established:
                found.setdefault(group, set()).update(served.versions)
        return {group: sort_versions(list(found[group])) for group in sorted(found) if found[group]}

    def cached(self, key: str) -> Any | None:
        """Return the result of ``compute_once`` for this key, None if it has not been computed."""
        return self._cache.get(key)

    def compute_once(self, key: str, make: Callable[["Catalog"], T]) -> T:
        """Return ``make(self)``; compute it only at the first call for a key."""
        if key not in self._cache:
            self._cache[key] = make(self)
        found: T = self._cache[key]
        return found


class LiveCatalog:
    """Holds the current catalog.

    A request reads ``current`` once and uses this value until its end.
    """

    __slots__ = ("current",)

    def __init__(self, current: Catalog) -> None:
        self.current = current
