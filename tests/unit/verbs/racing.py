"""Races of a writer and a rival that changes the same object concurrently.

The etcd of the races injects faults.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson
import pytest

from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.admission.lifecycle import NamespaceLifecycle
from apiext.documents.document import Document
from apiext.etcd.errors import TooLarge, Unavailable, UnknownOutcome
from apiext.etcd.values import KeyValue, WriteResult
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs import api, create, metadata
from apiext.verbs.admission_plugins import Namespaces
from apiext.verbs.call import Call, Outcome
from tests.support.fake_etcd import FakeWatch, Guards
from tests.unit.controllers.harness import NOW, PREFIX, Server, server
from tests.unit.verbs.harness import DEFINITION, Client, body
from tests.unit.verbs.test_late_servers import LateEtcd

OBJECTS = f"{PREFIX}/example.com/widgets/"
HOLD = "example.com/hold"
Rival = Callable[[str], Awaitable[None]]
"""A write of another client to the object at a key."""


class RacingEtcd(LateEtcd):
    """An etcd that lets a rival write before a transaction of a widget, or injects a fault.

    A fault makes transactions or reads of widgets fail. ``before`` maps the number of a transaction to the rival.
    ``fault``: "unsent" (the transaction is not sent), "lost" (its response), "large" (an object with managedFields), or
    "unread" (reads fail).
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, Rival] = {}
        self.fault = ""
        self.transactions = 0
        self.busy = False  # whether the rival writes

    def begin(self, before: Mapping[int, Rival], fault: str) -> None:
        """Reset the number of transactions, and set the rivals and the fault."""
        self.before, self.fault, self.transactions = dict(before), fault, 0

    async def get(self, key: bytes, *, revision: int = 0) -> KeyValue | None:
        if self.fault == "unread" and not self.busy and key.startswith(OBJECTS.encode()):
            raise Unavailable(14, "connection refused", sent=False)
        return await super().get(key, revision=revision)

    async def _guarded(self, key: bytes, value: bytes | None, expected: int, guards: Guards) -> WriteResult:
        if self.busy or not key.startswith(OBJECTS.encode()):
            return await super()._guarded(key, value, expected, guards)
        self.transactions += 1
        rival = self.before.get(self.transactions)
        if rival is not None:
            await self.disturb(rival, key.decode())
        if self.fault == "unsent":
            raise Unavailable(14, "connection refused", sent=False)
        if self.fault == "large" and b"managedFields" in (value or b""):
            raise TooLarge(3, "etcdserver: request is too large")
        result = await super()._guarded(key, value, expected, guards)
        if self.fault == "lost":
            raise UnknownOutcome(14, "connection reset")
        return result

    async def disturb(self, rival: Rival, key: str) -> None:
        """Call a rival."""
        self.busy = True
        try:
            await rival(key)
        finally:
            self.busy = False

    def watch(self, *span: object, **options: object) -> FakeWatch:
        return super().watch(*span, **options)


class Counting:
    """A plug-in that counts mutations and validations.

    It denies objects whose spec requests it.
    """

    name = "Counting"

    def __init__(self) -> None:
        self.mutated = self.reviewed = 0

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        self.mutated += 1
        return new

    async def review(self, attributes: Attributes) -> None:
        self.reviewed += 1
        shown = attributes.old if attributes.operation == "DELETE" else attributes.new
        spec = (shown or {}).get("spec")
        if isinstance(spec, dict) and spec.get("deny"):
            raise status.forbidden(attributes.resource, attributes.name_for_denial, "denied")


NUMBER = {"type": "integer"}


def schema(*fields: str) -> Document:
    spec = {"type": "object", "properties": dict.fromkeys(fields, NUMBER)}
    spec["properties"]["deny"] = {"type": "boolean"}  # type: ignore[index]
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "properties": {"spec": spec, "status": loose}}


def version(*fields: str) -> Document:
    """Return the version of the definition; its spec has ``fields``."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(*fields)},
        "subresources": {"status": {}, "scale": scale},
    }


OLD, NEW = ("n", "replicas"), ("n", "replicas", "m")
"""The fields of spec before and after a change of the definition, which adds ``m``."""


def state(name: str, **fields: Any) -> Document:
    """Return a stored object; ``fields`` are added to its metadata."""
    own = {"name": name, "namespace": "default", "uid": "u1", "generation": 1, "creationTimestamp": NOW, **fields}
    own["managedFields"] = [
        {
            "apiVersion": "example.com/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:n": {}}},
            "manager": "old",
            "operation": "Update",
            "time": NOW,
        }
    ]
    spec = {"n": 1, "replicas": 1}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": own, "spec": spec}


STATES: Mapping[str, Mapping[str, Any] | None] = {
    "absent": None,
    "present": {},
    "held": {"finalizers": [HOLD]},
    "deleting": {"finalizers": [HOLD], "deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0},
}


@dataclass(frozen=True)
class Verb:
    """A write: its verb, body, media type and subresource.

    ``body`` returns the body for the revision that the writer knows.
    """

    verb: str
    body: Callable[[str], Any]
    media: str = ""
    endpoint: str = ""
    dry: bool = False

    @property
    def query(self) -> Mapping[str, Sequence[str]]:
        query = {"dryRun": ["All"]} if self.dry else {}
        return {**query, "fieldManager": ["me"]} if "apply" in self.media else query


MERGE, JSON, APPLY = (f"application/{name}" for name in ("merge-patch+json", "json-patch+json", "apply-patch+yaml"))
WANTED = {"n": 2, "replicas": 1, "m": 5}


def whole(revision: str = "", spec: object = None, **fields: Any) -> Document:
    """Return the body of a PUT, a POST or an apply."""
    given = {**({"resourceVersion": revision} if revision else {}), **fields.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": given, "spec": spec or WANTED, **fields}


VERBS: Mapping[str, Verb] = {
    "create": Verb("create", lambda _: whole()),
    "create, generated": Verb("create", lambda _: whole(metadata={"generateName": "w-"})),
    "create, generated, dry": Verb("create", lambda _: whole(metadata={"generateName": "w-"}), dry=True),
    "create, dry": Verb("create", lambda _: whole(), dry=True),
    "create, invalid": Verb("create", lambda _: whole(spec={"n": "x"})),
    "create, denied": Verb("create", lambda _: whole(spec={"deny": True})),
    "put": Verb("update", whole),
    "put, unlocked": Verb("update", lambda _: whole()),
    "put, uid": Verb("update", lambda revision: whole(revision, metadata={"uid": "u1"})),
    "put, same": Verb("update", lambda revision: whole(revision, {"n": 1, "replicas": 1})),
    "put, dry": Verb("update", whole, dry=True),
    "put, invalid": Verb("update", lambda revision: whole(revision, {"n": "x"})),
    "put status": Verb("update", lambda revision: whole(revision, status={"ready": 1}), endpoint="status"),
    "merge patch": Verb("patch", lambda _: {"spec": {"n": 2, "m": 5}}, MERGE),
    "merge patch, same": Verb("patch", lambda _: {"spec": {"n": 1}}, MERGE),
    "merge patch, dry": Verb("patch", lambda _: {"spec": {"n": 2}}, MERGE, dry=True),
    "merge patch, invalid": Verb("patch", lambda _: {"spec": {"n": "x"}}, MERGE),
    "merge patch, denied": Verb("patch", lambda _: {"spec": {"deny": True}}, MERGE),
    "merge patch, locked": Verb(
        "patch", lambda revision: {"metadata": {"resourceVersion": revision}, "spec": {"n": 2}}, MERGE
    ),
    "merge patch, release": Verb("patch", lambda _: {"metadata": {"finalizers": None}}, MERGE),
    "merge patch, release, dry": Verb("patch", lambda _: {"metadata": {"finalizers": None}}, MERGE, dry=True),
    "merge patch status": Verb("patch", lambda _: {"status": {"ready": 1}}, MERGE, "status"),
    "merge patch scale": Verb("patch", lambda _: {"spec": {"replicas": 3}}, MERGE, "scale"),
    "merge patch scale, same": Verb("patch", lambda _: {"spec": {"replicas": 1}}, MERGE, "scale"),
    "merge patch scale, dry": Verb("patch", lambda _: {"spec": {"replicas": 3}}, MERGE, "scale", dry=True),
    "json patch": Verb(
        "patch",
        lambda _: [
            {"op": "test", "path": "/spec/n", "value": 1},
            {"op": "replace", "path": "/spec/n", "value": 2},
        ],
        JSON,
    ),
    "apply": Verb("patch", lambda _: whole(spec={"replicas": 1}), APPLY),
    "apply, new field": Verb("patch", lambda _: whole(spec={"m": 5}), APPLY),
    "apply, conflicting": Verb("patch", lambda _: whole(spec={"n": 2}), APPLY),
    "apply, dry": Verb("patch", lambda _: whole(spec={"replicas": 2}), APPLY, dry=True),
    "apply, uid": Verb("patch", lambda _: whole(spec={"replicas": 2}, metadata={"uid": "u1"}), APPLY),
    "apply, invalid": Verb("patch", lambda _: whole(spec={"n": "x"}), APPLY),
    "apply status": Verb("patch", lambda _: {**whole(status={"ready": 1}), "spec": {}}, APPLY, "status"),
    "delete": Verb("delete", lambda _: None),
    "delete, uid": Verb("delete", lambda _: {"preconditions": {"uid": "u1"}}),
    "delete, another uid": Verb("delete", lambda _: {"preconditions": {"uid": "u9"}}),
    "delete, locked": Verb("delete", lambda revision: {"preconditions": {"resourceVersion": revision}}),
    "delete, dry": Verb("delete", lambda _: {"dryRun": ["All"]}),
}


class World:
    """Two servers with one etcd: ``one`` of the rival, and ``other`` of the writer.

    The watch of ``other`` can be late.
    """

    def __init__(self, etcd: RacingEtcd, one: Server, other: Server, *, admitted: bool) -> None:
        self.etcd = etcd
        self.one, self.other = Client(one), Client(other)
        self.counting = Counting()
        lifecycle = NamespaceLifecycle(Namespaces(other.live, other.store))
        self.other.verbs.admission = Chain([lifecycle, self.counting] if admitted else [lifecycle])
        self.names = count(1)  # for generated names
        self._number = 0

    # -- rivals

    async def update(self, key: str) -> None:
        """Change the object."""
        document = self._stored(key)
        if document is not None:
            document["spec"]["replicas"] = document["spec"].get("replicas", 0) + 1
            self.etcd.put(key, orjson.dumps(document))

    async def create(self, key: str) -> None:
        """Create the object with another uid."""
        self.etcd.put(key, orjson.dumps(state(key.rpartition("/")[2], uid="u2")))

    async def delete(self, key: str) -> None:
        """Delete the object."""
        self.etcd.remove(key)

    async def replace(self, key: str) -> None:
        """Delete the object and create another one with its name."""
        self.etcd.remove(key)
        await self.create(key)

    async def hold(self, key: str) -> None:
        """Add a finalizer."""
        await self._with(key, finalizers=[HOLD])

    async def mark(self, key: str) -> None:
        """Set a deletionTimestamp."""
        await self._with(key, **(STATES["deleting"] or {}))

    async def _with(self, key: str, **fields: Any) -> None:
        document = self._stored(key)
        if document is not None:
            document["metadata"].update(fields)
            self.etcd.put(key, orjson.dumps(document))

    async def define(self, *fields: str) -> None:
        """Change the definition, and wait until the rival's server serves it."""

        def change(document: Document) -> None:
            document["spec"]["versions"] = [version(*fields)]
            document["metadata"]["generation"] += 1

        await self.one.server.change("widgets.example.com", change)
        await self.one.server.controllers.serving.refresh("example.com", "widgets")

    async def redefine(self, key: str) -> None:
        """Add a field to the definition."""
        await self.define(*NEW)

    async def relabel(self, key: str) -> None:
        """Change the namespace."""
        self._namespace(lambda document: document["metadata"].update(labels={"a": "b"}))

    async def terminate(self, key: str) -> None:
        """Mark the namespace, which has a finalizer, as terminating."""

        def change(document: Document) -> None:
            document["metadata"]["deletionTimestamp"] = NOW
            document["spec"] = {"finalizers": ["example.com/hold"]}
            document["status"] = {"phase": "Terminating"}

        self._namespace(change)

    def _namespace(self, change: Callable[[Document], None]) -> None:
        key = f"{PREFIX}/namespaces/default"
        document = orjson.loads(self.etcd.state(key)[key][1])
        change(document)
        self.etcd.put(key, orjson.dumps(document))

    # -- one race

    async def race(self, verb: Verb, before: str, rival: str = "", when: str = "", fault: str = "") -> str:
        """Return the response, the stored object, and two counts.

        They count transactions and calls of admission. ``when``: "late" (unnoticed by the writer's cache), "meanwhile"
        (before its first transaction), "twice".
        """
        self._number += 1
        name = f"w{self._number}"
        key, first = f"{OBJECTS}default/{name}", 0
        fields = STATES[before]
        if fields is not None:
            first = self.etcd.put(key, orjson.dumps(state(name, **fields)))
        await self.other.server.store.fresh()
        act: Rival | None = getattr(self, rival) if rival else None
        if act is not None and when == "late":
            self.etcd.late = True
            await self.etcd.disturb(act, key)
        rivals = {"meanwhile": (1,), "twice": (1, 2)}.get(when, ())
        self.etcd.begin({number: act for number in rivals if act is not None}, fault)
        self.counting.mutated = self.counting.reviewed = 0
        self.names = count(1)
        answer = await self._answer(verb, name, str(first or 1))
        counts = f"{self.etcd.transactions} {self.counting.mutated}+{self.counting.reviewed}"
        self.etcd.late = False
        self.etcd.begin({}, "")
        found = self.etcd.state(OBJECTS)
        newest = max((revision for revision, _ in found.values()), default=0)
        revisions = {str(newest): "newest", str(first): "first"}
        stored = [_object_text(orjson.loads(raw), {}, name) for _, raw in found.values()]
        for left in found:
            self.etcd.remove(left)
        if rival in ("redefine", "relabel", "terminate"):
            await self._restore(rival)
        return " | ".join([_outcome_text(answer, revisions, name), "; ".join(stored) or "nothing", counts])

    async def _restore(self, rival: str) -> None:
        if rival == "redefine":
            await self.define(*OLD)
        else:
            self._namespace(_restore_namespace)
        await self.other.server.store.fresh()
        await self.other.server.controllers.serving.refresh("example.com", "widgets")

    async def _answer(self, verb: Verb, name: str, revision: str) -> Mapping[str, Any]:
        sent = verb.body(revision)
        collection = verb.verb == "create"
        call = self._call(verb, "" if collection else name)
        if (
            isinstance(sent, dict)
            and "metadata" in sent
            and "apiVersion" in sent
            and not sent["metadata"].get("generateName")
        ):
            sent["metadata"]["name"] = name
        try:
            outcome = await self._ask(verb, call, sent)
        except StatusError as refused:
            return {"code": refused.code, "reason": refused.reason, "message": refused.message, "told": call.warnings}
        shown: dict[str, Any] = {"code": outcome.code, "told": call.warnings}
        if outcome.document is not None:
            return {**shown, "document": outcome.document}
        assert outcome.entry is not None
        return {**shown, "entry": orjson.loads(outcome.entry.view(call.served.codec.view))}

    def _call(self, verb: Verb, name: str) -> Call:
        call = self.other.call(verb.verb, name, verb.query)
        call.endpoint = call.served.endpoints[verb.endpoint]
        return call

    async def _ask(self, verb: Verb, call: Call, sent: Any) -> Outcome:
        verbs = self.other.verbs
        if verb.verb == "create":
            return await api.create(verbs, call, body(sent))
        if verb.verb == "update":
            return await api.update(verbs, call, body(sent))
        if verb.verb == "patch":
            return await api.patch(verbs, call, verb.media, orjson.dumps(sent))
        return await api.delete(verbs, call, sent)

    def _stored(self, key: str) -> Any:
        found = self.etcd.state(key).get(key)
        return None if found is None else orjson.loads(found[1])


def _restore_namespace(document: Document) -> None:
    document["metadata"].pop("deletionTimestamp", None)
    document["metadata"].pop("labels", None)
    document["spec"] = {"finalizers": ["kubernetes"]}
    document["status"] = {"phase": "Active"}


def _outcome_text(answer: Mapping[str, Any], revisions: Mapping[str, str], name: str) -> str:
    """Return a response in one line."""
    warnings = f" with {len(answer['told'])} warnings" if answer["told"] else ""
    if "message" in answer:
        message = answer["message"].replace(name, "NAME")
        message = _NUMBER.sub(lambda found: revisions.get(found[0], "ANOTHER"), message)
        short = message if len(message) < 60 else f"{message[:20]}…{message[-40:]}"
        return f"{answer['code']} {answer['reason']}: {short}{warnings}"
    where = "entry" if "entry" in answer else "document"
    return f"{answer['code']} {where} {_object_text(answer[where], revisions, name)}{warnings}"


def _object_text(document: Mapping[str, Any], revisions: Mapping[str, str], name: str) -> str:
    """Return an object in one line, with placeholders for names and revisions.

    In place of managedFields, the line has their managers.
    """
    own = document["metadata"]
    if document["kind"] == "Status":
        return f"Status {document.get('details', {}).get('uid')}"
    found = [f"{document['kind']} {own['name'].replace(name, 'NAME')} {own['uid']}"]
    if "resourceVersion" in own:
        found.append(f"at {revisions.get(own['resourceVersion'], 'another')}")
    found += [f"generation {own['generation']}"] if "generation" in own else []
    found += [word for word, field in _MARKS.items() if field in own]
    values = {**document.get("spec", {}), **document.get("status", {})}
    found += [f"{field}={value}" for field, value in sorted(values.items())]
    found += [f"by {one['manager']}" for one in own.get("managedFields", ())]
    return " ".join(found)


_NUMBER = re.compile(r"\b\d+\b")
_MARKS = {"held": "finalizers", "deleting": "deletionTimestamp"}


@asynccontextmanager
async def racing(monkeypatch: pytest.MonkeyPatch, *, admitted: bool) -> AsyncIterator[World]:
    """Run the two servers; uids and generated names are the same in each run."""
    etcd = RacingEtcd()

    class Same:
        def next(self) -> str:
            return "u-new"

    monkeypatch.setattr(metadata, "_UIDS", Same())
    async with server(etcd) as one, server(etcd) as other:
        definition = {**DEFINITION, "metadata": {"name": "widgets.example.com", "uid": "d1", "generation": 1}}
        definition["spec"] = {**definition["spec"], "versions": [version(*OLD)]}  # type: ignore[dict-item]
        await one.define(definition)
        for each in (one, other):
            await each.established("widgets.example.com")
        world = World(etcd, one, other, admitted=admitted)
        monkeypatch.setattr(create, "generate_name", lambda prefix: f"{prefix}{next(world.names)}x")
        yield world


EVENTS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "absent": (
        *(("create", when, "") for when in ("meanwhile", "late")),
        *(("redefine", when, "") for when in ("meanwhile", "late")),
        *(("relabel", when, "") for when in ("meanwhile", "late")),
        *(("terminate", when, "") for when in ("meanwhile", "late")),
    ),
    "present": (
        *((rival, when, "") for rival in ("update", "delete", "replace", "hold") for when in ("meanwhile", "late")),
        *((rival, "twice", "") for rival in ("update", "replace")),
        *(("redefine", when, "") for when in ("meanwhile", "late")),
    ),
    "held": tuple((rival, when, "") for rival in ("update", "delete", "mark") for when in ("meanwhile", "late")),
    "deleting": tuple((rival, when, "") for rival in ("update", "delete", "replace") for when in ("meanwhile", "late")),
}
"""The events in each state as (rival, when, fault), in addition to FAULTS."""

FAULTS = (("", "", ""), *(("", "", fault) for fault in ("unsent", "lost", "large", "unread")))


def races() -> Sequence[tuple[str, str, tuple[str, str, str]]]:
    """Return (verb, state, event) of every race."""
    return [
        (verb, state, event) for verb in VERBS for state, events in EVENTS.items() for event in (*FAULTS, *events)
        if state != "absent" or event[0] not in _OF_CREATES or verb.startswith(("create", "apply"))
    ]  # fmt: skip


_OF_CREATES = frozenset(("redefine", "relabel", "terminate"))
