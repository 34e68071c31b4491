"""What is served, as frozen values: version, resource, catalog, and the one cell that changes."""

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


# each request needs several of them, and making one is slow
_group_resource = lru_cache(limits.NAMES_SEEN)(GroupResource)
_group_kind = lru_cache(limits.NAMES_SEEN)(GroupKind)


class Column(Struct, frozen=True, eq=False):
    """A Table column: its definition, and the cell of a document (TAB-002, TAB-003).

    If it ``shows_age``, ``cell`` returns the RFC 3339 time since which the age counts, or None; or a pair of a text
    with ``{}`` for the age and the time, None for a text without an age. The shown cell changes with the clock:
    ``shown`` makes it, and a cache of cells asks ``Ages`` how long they hold.
    """

    name: str
    type: str
    format: str = ""
    description: str = ""
    priority: int = 0
    cell: Callable[[View], Any] = lambda _: None
    shows_age: bool = False

    def shown(self, ages: Ages) -> Callable[[View], Any]:
        """Return the function that makes the cell of a document, with the ages of one moment."""
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
    """The kind of the objects that an endpoint shows.

    - ``typed``: a Go type upstream, so a body is completed from the URL, may be protobuf, and takes a strategic merge.
    - ``normalize(document)`` prunes, coerces and defaults a body in place of decoding it; it returns the document and
      the paths of unknown fields, and raises ValueError with Go's text for a body that cannot be this kind.
    - ``custom_decoded(document)``: paths of the values in a body that have their own decoder in Go; upstream does not
      look for duplicate fields there.
    - ``merge_type()`` tells how its fields are owned; ``empty`` is an object that has no fields.
    - ``owns_items()``: whether the items of its lists may have an owner each.
    - ``merge_keys``: the lists that a strategic merge patch merges by key, as path → key.
    - ``schema()`` reads its OpenAPI schema, which is not kept in memory.
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
        """The OpenAPI schema, read anew; None if the stored definition has become unreadable."""
        try:
            return self.schema()
        except Unreadable:
            return None


class Endpoint(Struct, frozen=True):
    """The lens of one (sub)resource: what it shows, and how a change is put back.

    - ``model``: the kind of the objects that it shows; ``partial``: it is not the kind of the resource.
    - ``project(stored)`` is what a client of the endpoint sees. ``embed(existing, shown)`` is the whole object with the
      shown part put back; it raises ValueError with the message of a 400.
    - ``prepare(new, old)`` undoes what this endpoint may not change, and sets the generation; old is None on create.
      ``preview`` is the same for a dry run, if that differs.
    - ``unreadable(stored)`` is the message of the 500 that a get answers, empty if there is none.
    - ``reset``: paths that no writer of this endpoint owns (SSA-013). ``replicas``: names that lead to the field which
      a scale endpoint writes.
    - ``review``: the question that a create asks here; empty where objects are stored.
    - ``metadata_checks``: how the metadata of an update is validated (see ``objectmeta.validate_update``). If it is
      empty, the metadata of a new object is validated after its values.
    - ``sign(document, name, uid, groups, extra)`` writes into a new object which user has made it.
    - ``stamp(new, old, now)`` sets times in an update.
    - ``validate(new, old)`` replaces the validation of the kind.
    - ``connects``: the name of a function in ``verbs/connects.py``, for an endpoint that upstream forwards elsewhere.
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
        """Return ``prepare(new, old)``, or the result of ``preview`` for a dry run."""
        make = self.preview if dry_run and self.preview is not None else self.prepare
        return make(new, old)


class Names(Struct, frozen=True):
    """What a version of a resource is called in URLs, in the store, and in error texts.

    ``stored_as`` is the resource whose objects it shows, None for its own. The last four fields are computed.
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
    stored_kind: GroupKind = GroupKind("", "")  # errors of values name it, as those of upstream

    def __post_init__(self) -> None:
        resource = _group_resource(self.group, self.resource)
        force_setattr(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        force_setattr(self, "group_resource", resource)
        force_setattr(self, "stored_resource", self.stored_as or resource)
        force_setattr(self, "group_kind", _group_kind(self.group, self.kind))
        force_setattr(self, "stored_kind", _group_kind(self.stored_resource.group, self.kind))


class Codec(Struct, frozen=True):
    """How stored bytes become what a version shows, and back.

    - ``view(raw, revision)`` is the JSON that a client sees, without a newline; ``decode(raw, revision)`` is the same
      as a document. ``encode(document)`` makes the bytes to store, and so does ``to_store(document)`` for metadata as
      ``decode`` and ``normalize`` leave them.
    - ``converts``: these four may raise NeedsConversion. ``encode_as_is(document)`` never does: it stores a document in
      this version whatever the storage version is (None: as ``encode``).
    - ``decode_metadata(raw, revision)`` is the metadata that ``decode`` returns, without managedFields. It returns None
      if it cannot find them in the bytes; then ``decode`` is needed.
    - ``is_normalized(raw)``: reading these bytes is known to give what ``normalize`` gives, in each part.
    - ``evict(raw)``: these bytes are stored no more.
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
        """Return the codec that stores each document in its own version, so that no webhook is called."""
        if self.encode_as_is is None:
            return self
        return replace(self, encode=self.encode_as_is, to_store=self.encode_as_is, converts=False)


class Shaping(Struct, frozen=True):
    """How documents that were no bodies get the form of a version; each function may change its argument.

    ``accept`` prunes and coerces what a conversion webhook or an apply made, ``settle`` what admission policies made,
    whose nulls it keeps. ``complete`` fills in the defaults of an applied object. ``named`` fills in what follows from
    a generated name. ``internal`` is an object as it comes back from upstream's internal form, in which owners see it.
    """

    accept: Reshape = _same
    settle: Reshape = _same
    complete: Reshape = _same
    named: Reshape = _same
    internal: Reshape = _same


class Validation(Struct, frozen=True):
    """How a new or changed object is validated; ``old`` is None on create.

    ``structure(new, old, endpoint)`` is the part of ``validate`` that also counts for an object of another kind.
    ``rules(new, old, errors)`` evaluates rules knowing all other errors, and returns more errors and warnings.
    ``names(name)`` returns faults of a name; ``metadata`` validates metadata beyond the rules of all kinds.
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
    """What discovery and OpenAPI publish of a version besides its names, and the labels that select its objects.

    ``preserve``: spec.preserveUnknownFields of the definition, so that nothing is pruned. ``selectable``: field label →
    value of an object.
    """

    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    deprecation_warning: str = ""
    storage_version_hash: str = ""
    preserve: bool = False
    selectable: Mapping[str, Callable[[View], str]] = {}


class Traits(Struct, frozen=True):
    """In what writes of a built-in kind differ.

    ``unconditional``: a PUT without resourceVersion replaces any stored object (upstream's core kinds). ``upserts``: a
    PUT creates an object that is missing. ``returns_deleted``: the answer to a delete is the object, not a Status.
    ``uncollected``: a delete has no propagation policy (events).
    """

    unconditional: bool = False
    upserts: bool = False
    returns_deleted: bool = False
    uncollected: bool = False


class Work(Struct, frozen=True):
    """How long work on objects of a version takes.

    ``cold()``: reading an object takes long, since its schema is compiled then, or before in ``prepare()``.
    ``slow(size)``: work on an object of so many bytes may take long, as ``report(size, long)`` has reported before.
    """

    cold: Callable[[], bool] = lambda: False
    prepare: Callable[[], object] = lambda: None
    slow: Callable[[int], bool] = lambda size: False
    report: Callable[[int, bool], None] = lambda size, long: None


class ServedVersion(Struct, frozen=True, eq=False, weakref=True):
    """One version of a resource: all that reading and writing it needs, as values and closures.

    ``identity`` changes whenever open watches of the version must end.
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
        """Return this version for writes that store in it whatever the storage version is: no webhook is called."""
        return replace(self, codec=self.codec.as_is())


class ServedResource(Struct, frozen=True, eq=False):
    """A resource: its served versions by name, and the state of the definition behind it.

    ``guard_key`` and ``guard_revision`` are compared by every put of a custom object; empty for built-ins.
    ``identity`` changes with the definition's uid and shape. ``all_versions`` holds the unserved
    ones too, to read and write what is stored. ``conversion`` is the webhook's settings in v1 form, None without one.
    ``content`` changes with all of the definition's spec, prose too, with the names accepted and the uid; empty when
    nobody knows it. ``stored_as`` is the resource whose objects are shown, None for its own; ``equivalents`` are the
    versions of other groups that show the same objects. ``review`` tells that nothing is stored at all. ``ttl`` are the
    seconds after its last write when an object goes by itself, 0 for never. ``cached`` tells that reads may be of a
    while ago, and wait for a revision to come, as those of upstream's cache. ``unusable``: each request of it is a 500,
    since the CA bundle of its conversion webhook cannot be read.
    """

    group: str
    resource: str
    namespaced: bool
    versions: Mapping[str, ServedVersion]
    storage_version: str
    uid: str = ""
    generation: int = 0
    established: bool = True
    terminating: bool = False
    guard_key: str = ""
    guard_revision: int = 0
    identity: str = ""
    builtin: bool = False
    all_versions: Mapping[str, ServedVersion] = field(default_factory=dict)
    conversion: View | None = None
    content: str = ""
    stored_as: GroupResource | None = None
    equivalents: tuple[ServedVersion, ...] = ()
    review: bool = False
    ttl: int = 0
    cached: bool = True
    unusable: bool = False

    @property
    def stored_resource(self) -> GroupResource:
        """The resource that its objects are stored under."""
        return self.stored_as or self.group_resource

    @property
    def stores_objects(self) -> bool:
        """Whether objects are stored under its own name: neither a second view nor questions that are answered."""
        return self.stored_as is None and not self.review

    @property
    def group_resource(self) -> GroupResource:
        """The resource as keys and error texts name it."""
        return _group_resource(self.group, self.resource)

    def evict(self, raw: bytes) -> None:
        """Let every version drop what it has cached of bytes that are stored no more."""
        for version in (self.all_versions or self.versions).values():
            version.codec.evict(raw)

    @property
    def storage(self) -> ServedVersion | None:
        """The storage version if it is served."""
        return self.versions.get(self.storage_version)


class Catalog(Struct, frozen=True, eq=False):
    """Everything served at one moment. ``number`` grows with each change; discovery is computed from this value.

    ``builtin_groups`` are the groups of the server itself.
    """

    resources: FrozenMap[tuple[str, str], ServedResource] = field(default_factory=FrozenMap)
    number: int = 0
    builtin_groups: frozenset[str] = frozenset()
    _cache: dict[str, Any] = field(default_factory=dict)  # documents computed lazily from this value

    def resource(self, group: str, resource: str) -> ServedResource | None:
        """Return the resource of a group, whatever its versions."""
        return self.resources.get((group, resource))

    def lookup(self, group: str, version: str, resource: str) -> ServedVersion | None:
        """Return the served version that a URL names."""
        found = self.resources.get((group, resource))
        return found.versions.get(version) if found is not None else None

    def with_resource(self, served: ServedResource) -> "Catalog":
        """Return the catalog with the resource added or replaced."""
        resources = self.resources.put((served.group, served.resource), served)
        own = self.builtin_groups | {served.group} if served.builtin else self.builtin_groups
        return Catalog(resources, self.number + 1, own)

    def with_state(self, served: ServedResource) -> "Catalog":
        """Return the catalog with a resource replaced by one that no document shows otherwise.

        It keeps its number, and the documents computed from it.
        """
        return replace(self, resources=self.resources.put((served.group, served.resource), served))

    def without_resource(self, group: str, resource: str) -> "Catalog":
        """Return the catalog without the resource, which is no built-in one."""
        return Catalog(self.resources.without((group, resource)), self.number + 1, self.builtin_groups)

    def groups(self) -> dict[str, list[str]]:
        """Return the established groups and their versions, preferred version first (DIS-104)."""
        found: dict[str, set[str]] = {}
        for (group, _), served in self.resources.items():
            if served.established:
                found.setdefault(group, set()).update(served.versions)
        return {group: sort_versions(list(found[group])) for group in sorted(found) if found[group]}

    def cached(self, key: str) -> Any | None:
        """Return what was computed under a key before, None when nothing was."""
        return self._cache.get(key)

    def compute_once(self, key: str, make: Callable[["Catalog"], T]) -> T:
        """Return what ``make`` computes from this value, computed once."""
        if key not in self._cache:
            self._cache[key] = make(self)
        found: T = self._cache[key]
        return found


class LiveCatalog:
    """The one cell that changes; a request reads ``current`` once and keeps what it read."""

    __slots__ = ("current",)

    def __init__(self, current: Catalog) -> None:
        self.current = current
