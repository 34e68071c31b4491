"""ResourceQuota: charge a write to the quotas of its namespace before the object is stored.

Upstream: apiserver/pkg/admission/plugin/resourcequota. To charge a quota, the plug-in writes the new usage into the
status of the quota, if the quota still has the revision that the plug-in has read. So two writers never use the same
remaining amount. A lock for each namespace serialises the writers of one process. If a charged write fails afterwards,
the controller ``resourcequota-controller`` corrects the usage.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from apiext.admission import limits
from apiext.admission.attributes import Attributes
from apiext.admission.object_lookup import forbidden
from apiext.admission.plugin_services import Amend
from apiext.catalog.served import LiveCatalog
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry

if TYPE_CHECKING:  # only writes to a namespace with a quota need this module
    from apiext.go_types.pod_resources import Amounts

QUOTAS = GroupResource("", "resourcequotas")
_IGNORED = frozenset(
    (
        GroupResource("", "bindings"),
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
        GroupResource("authorization.k8s.io", "localsubjectaccessreviews"),
        GroupResource("", "namespaces"),
    )
)


class Charge:
    """The amounts that a write in progress has charged.

    ``amounts`` is uid of a quota → charged amounts. The write calls this object when it ends. ``is_stored`` reports
    whether the cache contains the written object.
    """

    __slots__ = ("_ended", "amounts", "busy", "is_stored", "namespace")

    def __init__(self, namespace: str, is_stored: Callable[[], bool], ended: Callable[["Charge", bool], None]) -> None:
        self.namespace = namespace
        self.busy = False  # true while this charge writes the status of a quota
        self.is_stored = is_stored
        self.amounts: dict[str, Amounts] = {}
        self._ended = ended

    def __call__(self, stored: bool) -> None:
        """End the charge; ``stored`` is false if the write failed."""
        self._ended(self, stored)


class _Change(NamedTuple):
    """A quota to charge: its entry, uid and new usage, and the amounts that this write adds."""

    entry: Entry
    uid: str
    used: "Amounts"
    charged: "Amounts"


class ResourceQuota:
    """The plug-in; it applies only while a quota exists."""

    name = "ResourceQuota"

    def __init__(self, catalog: LiveCatalog, store: CachedStore, amend: Amend) -> None:
        self._catalog = catalog
        self._store = store
        self._amend = amend
        self._collection = store.collection(QUOTAS)
        self._empty = self._collection is None
        self._followers: list[Callable[[], None]] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._pending: dict[str, list[Charge]] = {}
        self._written: dict[int, float] = {}  # revision → time of the write, oldest first
        self.failed: Callable[[str], None] = lambda _: None
        """Called with the namespace if a write fails after its charge."""
        if self._collection is not None:
            self._collection.feed.subscribe(self._changed)

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether a write with this operation and resource may increase the usage of a quota."""
        return not self._empty and operation in ("CREATE", "UPDATE") and resource not in _IGNORED

    def follow(self, changed: Callable[[], None]) -> None:
        """Let the plug-in call ``changed`` when the first quota is created or the last is deleted."""
        self._followers.append(changed)

    def pending(self, namespace: str) -> list[Charge]:
        """Return the charges of writes whose objects are not yet in the cache."""
        return [charge for charge in self._pending.get(namespace, ()) if not charge.is_stored()]

    def record(self, revision: int) -> None:
        """Record the revision of a quota that this server wrote."""
        now = asyncio.get_running_loop().time()
        self._written[revision] = now
        for oldest in list(islice(self._written, 2)):
            if self._written[oldest] < now - 2 * limits.QUOTA_SETTLES:
                del self._written[oldest]

    def wrote(self, revision: int) -> bool:
        """Report whether this server wrote a quota at this revision.

        ``record`` drops a revision, and the result becomes false, at the earliest after 2 * limits.QUOTA_SETTLES
        seconds.
        """
        return revision in self._written

    async def review(self, attributes: Attributes) -> None:
        """Charge a write to the quotas of its namespace.

        Raise 403 if a quota denies the write, 409 after limits.QUOTA_TRIES conflicts.
        """
        collection, namespace = self._collection, attributes.namespace
        if collection is None:
            return
        await collection.wait_ready()
        if not collection.state.count():
            self._set_empty(True)
            return
        if not namespace or not collection.state.count(namespace):
            return
        from apiext.admission.quota_usage import evaluator_of  # only namespaces with a quota need this module

        if evaluator_of(attributes.resource).handles(attributes):
            lock = self._locks.setdefault(namespace, asyncio.Lock())
            async with lock:
                await self._charge(collection, attributes, namespace)

    async def _charge(self, collection: Collection, attributes: Attributes, namespace: str) -> None:
        charge = self._charge_of(attributes, namespace)
        for _ in range(limits.QUOTA_TRIES):
            changes = list(self._changes(collection, attributes, namespace, charge.amounts))
            if attributes.dry_run:
                return
            conflict = ""
            for change in changes:
                if charge not in attributes.traces.on_end:
                    attributes.traces.on_end.append(charge)
                    self._pending.setdefault(namespace, []).append(charge)
                charge.busy = True
                try:
                    stored = await self._amend(QUOTAS, change.entry, partial(with_used, used=change.used))
                finally:
                    charge.busy = False
                if stored is None:
                    conflict = change.entry.name
                else:
                    self.record(stored.revision)
                    charge.amounts[change.uid] = change.charged
            if not conflict:
                return
            await self._store.fresh(collection)
        raise status.conflict(QUOTAS, conflict, status.MODIFIED)

    def _changes(
        self, collection: Collection, attributes: Attributes, namespace: str, charged: "Mapping[str, Amounts]"
    ) -> Iterator[_Change]:
        """Yield the quotas to charge; raise 403 if a quota denies the write."""
        served = self._catalog.current.lookup("", "v1", QUOTAS.resource)
        if served is None:
            return
        entries = collection.state.entries(namespace)
        quotas = [served.codec.decode(entry.raw, entry.revision) for entry in entries]
        for index, use in usages(attributes, quotas, charged).items():
            uid = quotas[index]["metadata"]["uid"]
            if use.amounts != charged.get(uid, {}):
                yield _Change(entries[index], uid, use.used, use.amounts)

    def _charge_of(self, attributes: Attributes, namespace: str) -> Charge:
        """Return the charge of an earlier try of this write, else a new charge."""
        for known in attributes.traces.on_end:
            if isinstance(known, Charge):
                return known
        found = self._store.collection(
            attributes.definition.stored_resource if attributes.definition is not None else attributes.resource
        )
        before = (attributes.old or {}).get("metadata", {}).get("resourceVersion")

        def is_stored() -> bool:
            entry = found.state.cached(namespace, attributes.name) if found is not None else None
            return entry is not None and str(entry.revision) != before

        return Charge(namespace, is_stored, self._ended)

    def _ended(self, charge: Charge, stored: bool) -> None:
        rest = [one for one in self._pending.get(charge.namespace, ()) if one is not charge]
        if rest:
            self._pending[charge.namespace] = rest
        else:
            self._pending.pop(charge.namespace, None)
        if not stored:
            self.failed(charge.namespace)

    def _changed(self, _: Change) -> None:
        self._set_empty(self._collection is None or not self._collection.state.count())

    def _set_empty(self, empty: bool) -> None:
        if empty is not self._empty:
            self._empty = empty
            for changed in self._followers:
                changed()


def with_used(quota: Document, used: "Amounts") -> Document:
    """Return a copy of a quota with this usage in its status."""
    return {**quota, "status": {**(quota.get("status") or {}), "used": dict(used)}}


class _Use(NamedTuple):
    """The new usage of a quota, and the amounts that one write adds."""

    used: "Amounts"
    amounts: "Amounts"


def usages(attributes: Attributes, quotas: Sequence[View], charged: "Mapping[str, Amounts]") -> dict[int, _Use]:
    """Return index in ``quotas`` → new usage, for each quota that applies to a write.

    Raise 403 if a quota denies the write. ``charged`` is uid of a quota → amounts of this write that the usage of the
    quota already includes.
    """
    from apiext.admission import quota_usage as usage  # imported here as in ResourceQuota.review
    from apiext.go_types.quantities import value_of

    evaluator, new = usage.evaluator_of(attributes.resource), attributes.new or {}
    matching = []
    for index, quota in enumerate(quotas):
        hard, used = (_status(quota).get(part) or {} for part in ("hard", "used"))
        names = [name for name in hard if evaluator.tracks(name)]
        if not names or not usage.matches(evaluator, quota.get("spec") or {}, new):
            continue
        if fault := evaluator.missing(names, new):
            raise forbidden(attributes, f"failed quota: {_name(quota)}: {fault}")
        if any(name not in used for name in names):
            text = f"status unknown for quota: {_name(quota)}, resources: {','.join(sorted(names))}"
            raise forbidden(attributes, text)
        matching.append(index)
    found = evaluator.usage(new)
    if negative := sorted(name for name, amount in found.items() if value_of(amount) < 0):
        raise forbidden(attributes, f"quota usage is negative for resource(s): {','.join(negative)}")
    old = attributes.old if attributes.operation == "UPDATE" else None
    uses = {}
    for index in matching:
        quota = quotas[index]
        counted_before = old is not None and usage.matches(evaluator, quota.get("spec") or {}, old)
        delta = usage.subtracted(found, evaluator.usage(old)) if counted_before and old is not None else found
        hard, used = (_status(quota).get(part) or {} for part in ("hard", "used"))
        amounts = {name: delta[name] for name in hard if name in delta and value_of(delta[name])}
        base = usage.subtracted(used, charged.get(quota["metadata"]["uid"], {}))
        total = usage.added(base, amounts)
        exceeded = [name for name in amounts if value_of(total[name]) > value_of(hard[name])]
        if exceeded and attributes.subresource != "status":
            parts = ({name: part[name] for name in exceeded} for part in (amounts, base, hard))
            requested, before, limited = map(usage.amounts_text, parts)
            text = f"exceeded quota: {_name(quota)}, requested: {requested}, used: {before}, limited: {limited}"
            raise forbidden(attributes, text)
        uses[index] = _Use(total, amounts)
    return uses


def _status(quota: View) -> View:
    found: View = quota.get("status") or {}
    return found


def _name(quota: View) -> str:
    name: str = quota["metadata"]["name"]
    return name
