"""Random calls to an etcd or embedded store.

Their responses can be compared between two stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from apiext.etcd import messages, requests
from apiext.etcd.errors import EtcdError
from apiext.etcd.transport import Transport

Answer = tuple[Any, ...]
KEYS = (b"a", b"a\x00", b"b", b"b/c", b"c")
WAIT = 2.0


@dataclass(frozen=True)
class Put:
    """A put, or a delete if ``value`` is None.

    ``expected`` is the revision of the key that many changes ago, -1 means absent; ``guards`` are (key, expected).
    """

    key: int
    value: bytes | None
    expected: int
    guards: tuple[tuple[int, int], ...]
    lease: int


@dataclass(frozen=True)
class Read:
    """A range at the revision ``back`` revisions before the newest one.

    -1 means a future revision, None the newest.
    """

    first: int
    last: int | None
    back: int | None
    limit: int
    keys_only: bool
    count_only: bool


@dataclass(frozen=True)
class Compact:
    """A compaction at the revision ``back`` revisions before the newest one."""

    back: int


@dataclass(frozen=True)
class Grant:
    """The grant of a lease with this number."""

    lease: int


@dataclass(frozen=True)
class Watch:
    """A watch from the revision ``back`` revisions before the newest one."""

    first: int
    last: int | None
    back: int
    previous: bool


_key = st.integers(0, len(KEYS) - 1)
_ago = st.sampled_from((0, 0, 0, 0, -1, 1))
_span = {"first": _key, "last": st.one_of(st.none(), st.integers(0, len(KEYS)))}
calls = st.lists(
    st.one_of(
        *[
            st.builds(
                Put,
                key=_key,
                value=st.one_of(st.none(), st.binary(max_size=3), st.just(b"x" * 300)),
                expected=_ago,
                guards=st.lists(st.tuples(_key, _ago), max_size=2).map(tuple),
                lease=st.sampled_from((0, 0, 0, 1, 2)),
            )
        ]
        * 4,
        st.builds(
            Read,
            **_span,
            back=st.one_of(st.none(), st.integers(-1, 8)),
            limit=st.integers(0, 3),
            keys_only=st.booleans(),
            count_only=st.booleans(),
        ),
        st.builds(Compact, back=st.integers(-1, 6)),
        st.builds(Grant, lease=st.integers(1, 3)),
        st.builds(Watch, **_span, back=st.integers(-2, 8), previous=st.booleans()),
    ),
    max_size=25,
)


class Player:
    """Sends calls to one store, beginning at its current revision.

    Only this player uses its keys and leases.
    """

    def __init__(self, transport: Transport, prefix: bytes, leases: int) -> None:
        self._transport = transport
        self._prefix = prefix
        self._leases = leases
        self._zero = self._head = 0
        self._past: dict[int, list[int]] = {}  # key → revisions of its changes, 0 for a deletion
        self._log: dict[int, list[int]] = {}  # key → revisions of all its changes
        self._deleted: set[int] = set()  # revisions of deletions
        self._compacted = 0

    async def play(self, sequence: list[Any]) -> list[Answer]:
        """Return the responses to all calls, with relative revisions.

        They are relative to the store's revision at the beginning.
        """
        probe = messages.RangeRequest(key=b"\0", count_only=True)
        found = messages.RangeResponse.FromString(await self._send(messages.RANGE, probe.SerializeToString()))
        self._zero = self._head = found.header.revision
        return [await self._answer(call) for call in sequence]

    async def _answer(self, call: Any) -> Answer:
        steps: dict[type, Callable[[Any], Any]] = {
            Put: self._put, Read: self._read, Compact: self._compact, Grant: self._grant, Watch: self._watch,
        }  # fmt: skip
        try:
            answer: Answer = await steps[type(call)](call)
        except EtcdError as error:
            return ("refused", error.code, error.message)
        return answer

    async def _send(self, path: str, message: bytes) -> bytes:
        return await self._transport.unary(path, message, WAIT)

    def _expected(self, key: int, ago: int) -> int:
        past = self._past.get(key, [])
        if ago < 0 or len(past) <= ago:
            return 0
        return past[-1 - ago]

    async def _put(self, call: Put) -> Answer:
        guards = tuple((self._key(key), self._expected(key, ago)) for key, ago in call.guards if key != call.key)
        expected = self._expected(call.key, call.expected)
        lease = self._leases + call.lease if call.lease else 0
        if call.value is None:
            request = requests.delete(self._key(call.key), expected, guards)
        else:
            request = requests.put(self._key(call.key), call.value, expected, guards, lease)
        answer = messages.TxnResponse.FromString(await self._send(messages.TXN, request))
        if answer.succeeded and answer.header.revision > self._head:
            self._head = answer.header.revision
            self._past.setdefault(call.key, []).append(0 if call.value is None else self._head)
            self._log.setdefault(call.key, []).append(self._head)
            if call.value is None:
                self._deleted.add(self._head)
        return ("txn", self._plain(answer))

    async def _read(self, call: Read) -> Answer:
        request = messages.RangeRequest(
            key=self._key(call.first),
            range_end=self._end(call.last),
            revision=0 if call.back is None else max(self._head - call.back, self._zero),
            limit=call.limit,
            keys_only=call.keys_only,
            count_only=call.count_only,
        )
        raw = await self._send(messages.RANGE, request.SerializeToString())
        return ("range", self._plain(messages.RangeResponse.FromString(raw)))

    async def _compact(self, call: Compact) -> Answer:
        revision = self._head - call.back
        if revision <= self._zero:
            return ("none",)
        request = messages.CompactionRequest(revision=revision).SerializeToString()
        answer = messages.message_class("CompactionResponse").FromString(await self._send(messages.COMPACT, request))
        self._compacted = revision
        return ("compacted", self._plain(answer))

    async def _grant(self, call: Grant) -> Answer:
        request = messages.LeaseGrantRequest(TTL=600, ID=self._leases + call.lease).SerializeToString()
        answer = messages.LeaseGrantResponse.FromString(await self._send(messages.LEASE_GRANT, request))
        return ("lease", answer.ID - self._leases, answer.TTL, answer.error, answer.header.revision - self._zero)

    async def _watch(self, call: Watch) -> Answer:
        start = max(self._head - call.back, self._zero + 1)
        if start == self._compacted and start in self._deleted:
            return ("none",)  # etcd before 3.5.13 loses a deletion at the compacted revision
        end = self._end(call.last)
        request = messages.WatchRequest()
        request.create_request.key = self._key(call.first)
        request.create_request.range_end = end
        request.create_request.start_revision = start
        request.create_request.prev_kv = call.previous
        said: asyncio.Queue[Any] = asyncio.Queue()
        stream = self._transport.stream(
            messages.WATCH,
            lambda raw: said.put_nowait(messages.WatchResponse.FromString(raw)),
            said.put_nowait,
        )
        told: list[Any] = []
        try:
            stream.send(request.SerializeToString())
            async with asyncio.timeout(WAIT):
                while True:
                    answer = await said.get()
                    assert not isinstance(answer, EtcdError), answer
                    told += [self._plain(event) for event in answer.events]
                    if answer.canceled:
                        if not answer.compact_revision:
                            return ("canceled", told, answer.created, answer.watch_id, answer.cancel_reason)
                        return ("compacted", told, answer.compact_revision - self._zero)
                    if answer.created:
                        assert not answer.events
                        if start >= self._compacted and self._last_in(call) < start:
                            return ("created", told)
                    if answer.events and answer.events[-1].kv.mod_revision >= self._last_in(call):
                        return ("events", told)
        finally:
            stream.cancel()

    def _last_in(self, call: Watch) -> int:
        revisions = [0]
        for key, changes in self._log.items():
            name, end = self._key(key), self._end(call.last)
            if name == self._key(call.first) or (end and self._key(call.first) <= name < end):
                revisions += changes
        return max(revisions)

    def _key(self, number: int) -> bytes:
        return self._prefix + KEYS[number]

    def _end(self, last: int | None) -> bytes:
        if last is None:
            return b""
        return self._prefix + b"\xff" if last == len(KEYS) else self._key(last)

    def _plain(self, message: Any) -> Answer:
        """Return the fields of a message without fields that differ between stores.

        Revisions are relative to the store's revision at the beginning.
        """
        found: list[Any] = []
        for field, value in message.ListFields():
            name = field.name
            if name in ("revision", "mod_revision", "create_revision"):
                found.append((name, value - self._zero))
            elif name == "lease":
                found.append((name, value - self._leases))
            elif name == "key":
                found.append((name, value.removeprefix(self._prefix)))
            elif field.message_type is not None:
                repeated = not hasattr(value, "ListFields")
                found.append((name, [self._plain(one) for one in value] if repeated else self._plain(value)))
            elif name not in ("cluster_id", "member_id", "raft_term"):
                found.append((name, value))
        return tuple(found)
