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


def _same(document: Document) -> Document:
    return document


# asked for several times by each request, and slow to make
_group_resource = lru_cache(limits.NAMES_SEEN)(GroupResource)
_group_kind = lru_cache(limits.NAMES_SEEN)(GroupKind)


class Column(Struct, frozen=True, eq=False):
    """A Table column: its definition, and the cell of a document (TAB-002, TAB-003).

    Where it ``tells_age``, ``cell`` returns the RFC 3339 time since which the age counts, or None; or a pair of a text
    with ``{}`` for the age and the time, None for a text without an age. The shown cell changes with the clock:
    ``shown`` makes it, and a cache of cells asks ``Ages`` how long they hold.
    """

    name: str
    type: str
    format: str = ""
    description: str = ""
    priority: int = 0
    cell: Callable[[View], Any] = lambda _: None
    tells_age: bool = False

    def shown(self, ages: Ages) -> Callable[[View], Any]:
        """Return what makes the cell of a document, with the ages of one moment."""
        find, of = self.cell, ages.of
        if not self.tells_age:
            return find

        def cell(document: View) -> Any:
            stamp = find(document)
            if stamp.__class__ is tuple:
                text, stamp = stamp
                return text if stamp is None else text.format(of(stamp))
            return stamp if stamp is None else of(stamp)

        return cell


class Endpoint(Struct, frozen=True):
    """The lens of one (sub)resource: what it shows, what a change puts back.

    ``project(stored)`` is what a client of the endpoint sees. ``embed(existing, shown)`` is the whole object with the
    shown part put back. ``prepare(new, old)`` undoes what this endpoint may not change and sets the generation; old is
    None on create; ``preview`` is the same for a dry run where that differs.
    ``kind``, ``group`` and ``version`` are those of the shown object, empty for the resource's own.
    ``normalize`` decodes a body of another kind (None: the version's own). ``columns`` are those of its table, empty
    for the version's own. ``unreadable(stored)`` is the message of the 500 that a get answers, empty when there is
    none; ``embed`` raises ValueError with the message of a 400. ``reset`` are the paths that nobody can own by writing
    here (SSA-013); ``replicas`` are the names that lead to what a scale endpoint writes. ``review``
    is the question that a create asks here, empty where objects are stored. ``schema()`` is that of a kind of its own
    (None: the version's, or one that all groups share); ``merge_type()`` tells how the fields of another kind are owned
    and ``empty`` is one that has none (None for both: the version's). ``judges`` is how the kind judges the metadata of
    a change here (see ``objectmeta.validate_update``); with none, those of a new object are judged once the kind is
    content. ``sign(document, name, uid, groups, extra)`` tells in a new object which user has made it.
    """

    name: str
    verbs: tuple[str, ...]
    project: Callable[[View], View]
    embed: Callable[[View, View], Document]
    prepare: Callable[[Document, View | None], Document]
    group: str = ""
    version: str = ""
    kind: str = ""
    normalize: Callable[[Document], tuple[Document, list[str]]] | None = None
    columns: tuple[Column, ...] = ()
    unreadable: Callable[[View], str] = lambda stored: ""
    reset: FieldSet = field(default_factory=lambda: EMPTY)
    replicas: tuple[str, ...] = ()
    review: str = ""
    schema: Callable[[], View | None] | None = None
    merge_type: Callable[[], Type] | None = None
    empty: View | None = None
    judges: tuple[str, ...] = (CHANGE,)
    preview: Callable[[Document, View | None], Document] | None = None
    sign: Callable[[Document, str, str, Sequence[str], View], None] | None = None

    def prepared(self, new: Document, old: View | None, dry_run: bool) -> Document:
        """Return ``prepare(new, old)``, or what ``preview`` makes of a dry run where that differs."""
        make = self.preview if dry_run and self.preview is not None else self.prepare
        return make(new, old)


class ServedVersion(Struct, frozen=True, eq=False, weakref=True):
    """One version of a resource, with everything that reading and writing it needs, as closures.

    ``view(raw, revision)`` is the JSON that a client sees (bytes in, bytes out, no newline). ``decode(raw, revision)``
    is the same as a document. ``encode(document)`` is what is stored. ``normalize(document)`` prunes, coerces and
    defaults a request body in place of decoding it, and returns the document with the paths of unknown fields; it
    raises ValueError with Go-like text for a body that cannot be this kind. ``validate(new, old)`` and
    ``warnings(new, old)`` judge a whole object; old is None on create. ``structure(new, old, endpoint)`` is the part of
    ``validate`` that also counts for an object of another kind. ``rules(new, old, errors)`` evaluates its rules
    knowing all other errors, and returns more errors and warnings. ``name_messages(name)`` tells what is wrong
    with a name. ``accept(document)`` prunes and coerces what a conversion
    webhook or an apply made in this version. ``schema()`` reads the OpenAPI schema, which nobody keeps; ``cold()``
    tells that reading an object takes long, since its schema is compiled then or in ``prepare()``; ``slow(size)`` that
    work on an object of so many bytes may take long, by what was told to ``tell(size, long)`` before. ``merge_type()``
    tells how its fields are owned, ``owns_items()`` whether items of its lists may have an owner each, ``empty`` is an
    object that has none, ``complete(document)`` defaults in place what an apply made,
    ``settle(document)`` prunes and coerces what policies made and keeps its nulls. ``named(document)``
    fills in what follows from a name that was generated.
    ``read_apart(document)`` are the paths of values of a body that look for no field twice. ``internal(document)`` is
    an object as it comes back from upstream's internal form, in which owners see it. ``converts`` tells that ``view``,
    ``decode`` and ``encode`` may raise NeedsConversion; ``encode_as_is(document)`` never does: it stores in this
    version whatever the storage version is (None: as ``encode``). ``encode_formed(document)`` does what ``encode``
    does, for metadata as ``decode`` and ``normalize`` leave them (None: as ``encode``). ``glance(raw, revision)`` is
    what ``decode`` makes of metadata, without managedFields; None where one has to decode. ``exact(raw)`` tells that
    what is read of stored bytes is known to be as ``normalize`` leaves it, in each of its parts. ``outdated(raw)`` is
    told of stored bytes that are no object any more. ``identity`` changes whenever open watches of the version must
    end.
    """

    group: str
    version: str
    resource: str
    kind: str
    list_kind: str
    namespaced: bool
    view: Callable[[bytes, int], bytes]
    decode: Callable[[bytes, int], Document]
    encode: Callable[[Document], bytes]
    normalize: Callable[[Document], tuple[Document, list[str]]]
    endpoints: Mapping[str, Endpoint]
    columns: tuple[Column, ...] = ()
    validate: Callable[[View, View | None], list[FieldError]] = lambda new, old: []
    validate_status: Callable[[View, View | None], list[FieldError]] = lambda new, old: []
    structure: Callable[[View, View | None, str], list[FieldError]] = lambda new, old, endpoint: []
    warnings: Callable[[View, View | None], list[str]] = lambda new, old: []
    warnings_status: Callable[[View, View | None], list[str]] = lambda new, old: []
    rules: Callable[[View, View | None, Sequence[FieldError]], tuple[list[FieldError], list[str]]] = (
        lambda new, old, errors: ([], [])
    )
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    deprecation_warning: str = ""
    selectable: Mapping[str, Callable[[View], str]] = field(default_factory=dict)
    typed: bool = False  # a Go type upstream: completed from the URL, protobuf, strategic merge
    schema: Callable[[], View | None] = lambda: None
    cold: Callable[[], bool] = lambda: False
    prepare: Callable[[], object] = lambda: None
    slow: Callable[[int], bool] = lambda size: False
    tell: Callable[[int, bool], None] = lambda size, long: None
    storage_version_hash: str = ""
    merge_keys: Mapping[str, str] = field(default_factory=dict)  # lists that strategic merge patch merges by key
    name_messages: Callable[[str], list[str]] = dns1123_subdomain
    accept: Callable[[Document], Document] = _same
    merge_type: Callable[[], Type] = lambda: merge_type(None)
    owns_items: Callable[[], bool] = lambda: True
    empty: View = field(default_factory=dict)
    complete: Callable[[Document], Document] = _same
    read_apart: Callable[[View], Sequence[str]] = lambda document: ()
    internal: Callable[[Document], Document] = _same
    settle: Callable[[Document], Document] = _same
    named: Callable[[Document], Document] = _same
    encode_as_is: Callable[[Document], bytes] | None = None
    encode_formed: Callable[[Document], bytes] | None = None
    glance: Callable[[bytes, int], Document | None] = lambda raw, revision: None
    exact: Callable[[bytes], bool] = lambda raw: False
    outdated: Callable[[bytes], None] = lambda raw: None
    converts: bool = False
    identity: str = ""
    judge_metadata: Callable[[View], list[FieldError]] | None = None  # what the kind says of metadata besides the rules
    unconditional: bool = False  # a PUT without resourceVersion replaces whatever is there (upstream's core kinds)
    upserts: bool = False  # a PUT creates what is not there
    returns_deleted: bool = False  # the answer to a delete is the object, not a Status
    uncollected: bool = False  # how a delete propagates is nothing to it (events)
    preserve: bool = False  # spec.preserveUnknownFields: nothing is pruned
    stored_as: GroupResource | None = None  # whose objects it shows, None for its own
    # the rest is computed from the fields above: every request asks for these several times
    api_version: str = ""  # of objects in this version
    to_store: Callable[[Document], bytes] = lambda document: b""  # encode_formed if there is one, else encode
    group_resource: GroupResource = GroupResource("", "")  # as error texts name it
    stored_resource: GroupResource = GroupResource("", "")  # that its objects are stored under
    group_kind: GroupKind = GroupKind("", "")  # as error texts name it
    stored_kind: GroupKind = GroupKind("", "")  # as errors of its values name it: upstream, in the group of the storage

    def __post_init__(self) -> None:
        resource = _group_resource(self.group, self.resource)
        force_setattr(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        force_setattr(self, "to_store", self.encode_formed or self.encode)
        force_setattr(self, "group_resource", resource)
        force_setattr(self, "stored_resource", self.stored_as or resource)
        force_setattr(self, "group_kind", _group_kind(self.group, self.kind))
        force_setattr(self, "stored_kind", _group_kind(self.stored_resource.group, self.kind))

    def as_is(self) -> "ServedVersion":
        """Return this version for writes that store in it whatever the storage version is, so that nobody converts."""
        if self.encode_as_is is None:
            return self
        return replace(self, encode=self.encode_as_is, encode_formed=None, converts=False)

    @property
    def open_api(self) -> View | None:
        """The OpenAPI schema, read anew: ask once; none if others made the definition unreadable meanwhile."""
        try:
            return self.schema()
        except Unreadable:
            return None


class ServedResource(Struct, frozen=True, eq=False):
    """A resource: its served versions by name, and the state of the definition behind it.

    ``guard_key`` and ``guard_revision`` are compared by every put of a custom object; empty for built-ins.
    ``identity`` changes with the definition's uid and shape. ``all_versions`` holds the unserved
    ones too, to read and write what is stored. ``conversion`` is the webhook's settings in v1 form, None without one.
    ``content`` changes with all of the definition's spec, prose too, with the names accepted and the uid; empty when
    nobody knows it. ``stored_as`` is the resource whose objects are shown, None for its own; ``equals`` are the
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
    equals: tuple[ServedVersion, ...] = ()
    review: bool = False
    ttl: int = 0
    cached: bool = True
    unusable: bool = False

    @property
    def stored_resource(self) -> GroupResource:
        """The resource that its objects are stored under."""
        return self.stored_as or self.group_resource

    @property
    def keeps(self) -> bool:
        """Whether objects are stored under its own name: neither a second view nor questions that are answered."""
        return self.stored_as is None and not self.review

    @property
    def group_resource(self) -> GroupResource:
        """The resource as keys and error texts name it."""
        return _group_resource(self.group, self.resource)

    def outdated(self, raw: bytes) -> None:
        """Take note that stored bytes are no object any more, so that no version remembers anything of them."""
        for version in (self.all_versions or self.versions).values():
            version.outdated(raw)

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

    def known(self, key: str) -> Any | None:
        """Return what was computed under a key before, None when nothing was."""
        return self._cache.get(key)

    def remember(self, key: str, make: Callable[["Catalog"], T]) -> T:
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
