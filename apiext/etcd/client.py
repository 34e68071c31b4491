"""The etcd client of the store: typed calls, guarded writes, resumed watches, safe retries."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Any

from apiext.etcd import limits, messages, requests
from apiext.etcd.calls import Caller, Login, now
from apiext.etcd.channel import Channel
from apiext.etcd.errors import (
    DEADLINE_EXCEEDED,
    PERMISSION_DENIED,
    UNAVAILABLE,
    Closed,
    EtcdError,
    StoreReplaced,
    of_etcd,
)
from apiext.etcd.head import HeadProbe
from apiext.etcd.lineage import Lineage
from apiext.etcd.scope import RateLimitedLog, Scope, log
from apiext.etcd.transport import TLS, Dial, Transport, parse_endpoint
from apiext.etcd.values import Alarm, Batch, KeyValue, RangeResult, Status, WatchEvent, WriteResult, key_value
from apiext.etcd.versions import orders_progress, parse_version
from apiext.etcd.watch import Watch, WatchHandle, WatchSpec
from apiext.etcd.writes import Attempt, Writer, read_result

__all__ = [
    "TLS",
    "Alarm",
    "Batch",
    "Etcd",
    "KeyValue",
    "RangeResult",
    "Status",
    "WatchEvent",
    "WatchHandle",
    "WriteResult",
    "prefix_end",
]

Guards = Sequence[tuple[bytes, int]]
"""(key, expected mod_revision) of other keys: the transaction of a write also compares these revisions."""
Outcome = Coroutine[Any, Any, WriteResult]
PROBE = b"\x00"  # a key that does not exist, so the response has only the header, which contains the head revision


def prefix_end(prefix: bytes) -> bytes:
    """Return the range end for all keys with the prefix.

    Return ``b"\\0"`` (all keys) for an empty prefix.
    """
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else b"\x00"


def _own_dial() -> Dial:
    from apiext.etcd.dial import dial  # imported only here, since a store in this process does not need it

    return dial


class Etcd:
    """A client of one etcd cluster.

    It has one connection for calls and one connection for watches.
    """

    progress_requests_ok: bool = False
    version: str = ""
    """The etcd version of the member that serves the watches."""
    stuck: Callable[[], bool]
    """Reports whether the store in this process serves reads, but no writes; always False for an external etcd."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        transport: Dial | None = None,
        tls: TLS | None = None,
        user: str = "",
        password: str = "",
        budget: float = limits.CALL_BUDGET,
        probe: bytes = PROBE,
    ) -> None:
        """``transport`` opens connections; the default uses HTTP/2.

        A call is retried for ``budget`` seconds. ``probe`` is a key that never exists. A server passes a key below its
        prefix, since the etcd user may have access only to this prefix.
        """
        dial, tls = transport or _own_dial(), tls or TLS()
        where = [parse_endpoint(endpoint) for endpoint in endpoints]
        self._scope = Scope()
        self._login = Login(user, password)
        self._calls = Channel(where, tls, dial, self._scope, self._set_up_calls)
        self._streams = Channel(where, tls, dial, self._scope, self._set_up_streams)
        self._caller = Caller(self._calls, self._login, budget)
        self._writer = Writer(self._caller)
        self.stuck = lambda: False
        self._probe_key = probe
        self._lineage = Lineage()
        self._head = HeadProbe(self._caller, self._scope, self._lineage, probe, self._end_if_replaced)
        self._watches: set[Watch] = set()
        self.closed_watches = RateLimitedLog()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self, within: float = inf) -> None:
        """Open both connections; raise Unavailable or AuthError.

        Wait for each connection at most ``within`` seconds, or the budget of a call if this is shorter.
        """
        budget, self._caller.budget = self._caller.budget, min(within, self._caller.budget)
        self._loop = asyncio.get_running_loop()  # cached: in Python 3.11 it makes a system call
        self._head.start()
        await self._scope.open()
        self._calls.start()
        self._streams.start()
        try:
            await self.head_revision()
            deadline = now() + self._caller.budget
            await self._streams.connection(deadline)
        except BaseException:
            await self.close()
            raise
        self._caller.budget = budget
        self._scope.spawn(self._head.run())
        self._scope.spawn(self._check_watch_connection())

    async def close(self) -> None:
        """End all watches (``on_end`` gets Closed), and close the connections."""
        if self._closed:
            return
        self._closed = True
        for watch in list(self._watches):
            watch.end(Closed())
        await self._scope.close()
        await self._calls.close(limits.CLOSE_BUDGET)
        await self._streams.close(limits.CLOSE_BUDGET)

    async def wait_closed(self) -> None:
        """Wait until the client is closed.

        A failed task (a bug) also closes the client; then raise its exception.
        """
        await self._scope.wait_closed()

    @property
    def connected(self) -> bool:
        """True if both connections are open."""
        return self._calls.live is not None and self._streams.live is not None

    @property
    def answering(self) -> bool:
        """True if reads of the head revision succeed in time, and the store is not ``stuck``.

        See HeadProbe.answering.
        """
        return self._head.answering and not self.stuck()

    async def _check_watch_connection(self) -> None:
        """Replace the watch connection if its member does not answer even a serializable read."""
        request = requests.get(self._probe_key, 0, serializable=True)
        while True:
            await asyncio.sleep(limits.PROBE_EVERY)
            transport, began = self._streams.live, self._loop.time()
            if transport is None or transport.last_byte_at > began - limits.PROBE_EVERY:
                continue
            try:
                await transport.unary(messages.RANGE, request, limits.TRY)
            except EtcdError as error:
                if error.code == DEADLINE_EXCEEDED and transport.last_byte_at <= began:
                    self._streams.retire(transport, "no byte on the connection for watches")

    async def _set_up_calls(self, transport: Transport) -> None:
        await self._set_up(transport)

    async def _set_up(self, transport: Transport) -> bytes | None:
        """Log in, and return the status response; None if the user may not read the status.

        Raise EtcdError if the response is not from etcd. Return b"" for other errors of etcd.
        """
        await self._login.log_in(transport)
        try:
            return await transport.unary(messages.STATUS, b"", limits.TRY)
        except EtcdError as error:
            if not of_etcd(error):
                raise EtcdError(UNAVAILABLE, error.message, sent=False) from error
            return None if error.code == PERMISSION_DENIED else b""

    async def _set_up_streams(self, transport: Transport) -> None:
        raw = await self._set_up(transport)
        self.version = messages.StatusResponse.FromString(raw or b"").version
        # None: the user may not read the status. Versions before 3.6 allow all users to read it, so this one is newer.
        self.progress_requests_ok = raw is None or orders_progress(parse_version(self.version))

    # -- reads ---------------------------------------------------------------------------------------------------

    async def get(self, key: bytes, *, revision: int = 0) -> KeyValue | None:
        """Return a key with its value at a revision (0: now); None if the key does not exist.

        Raises Compacted, FutureRevision, Unavailable, AuthError.
        """
        request = requests.get(key, revision, serializable=False)
        answer = messages.RangeResponse.FromString(await self._caller.read(messages.RANGE, request))
        return key_value(answer.kvs[0]) if answer.kvs else None

    async def range(
        self,
        start: bytes,
        end: bytes,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
    ) -> RangeResult:
        """Return the first ``limit`` keys (0: all) of [start, end), in order.

        Raises the errors of ``get``.
        """
        request = messages.RangeRequest(
            key=start,
            range_end=end,
            limit=limit,
            revision=revision,
            keys_only=keys_only,
        ).SerializeToString()
        answer = messages.RangeResponse.FromString(await self._caller.read(messages.RANGE, request, limits.LONG_TRY))
        return RangeResult([key_value(kv) for kv in answer.kvs], answer.more, answer.count, answer.header.revision)

    def head_revision(self) -> Coroutine[Any, Any, int]:
        """Return the head revision at the time of this call or later.

        Callers that wait share the next read.
        """
        return self._head.revision()

    def _end_if_replaced(self, fault: StoreReplaced | None) -> None:
        if fault is not None:
            log.error("etcd: %s; all caches are loaded again", fault.message)
            for watch in list(self._watches):
                watch.end(fault)

    # -- writes --------------------------------------------------------------------------------------------------

    # ``create``, ``update`` and ``delete`` return the coroutine of ``_write``. If they were ``async``, each write would
    # create a second coroutine.
    def create(self, key: bytes, value: bytes, *, guards: Guards = (), lease: int = 0) -> Outcome:
        """Put a key that must not exist.

        After a conflict, the result is not ``ok`` (see WriteResult). Raises TooLarge, OutOfSpace, Overloaded, Corrupt,
        Unavailable, UnknownOutcome, AuthError.
        """
        return self._write(requests.put(key, value, 0, guards, lease), key, value, 0)

    def update(self, key: bytes, value: bytes, expected: int, *, guards: Guards = (), lease: int = 0) -> Outcome:
        """Put a key that must have the mod_revision ``expected`` (0: must not exist).

        Raises the errors of ``create``.
        """
        return self._write(requests.put(key, value, expected, guards, lease), key, value, expected)

    def delete(self, key: bytes, expected: int, *, guards: Guards = ()) -> Outcome:
        """Delete a key that must have the mod_revision ``expected``.

        Raises the errors of ``create``.
        """
        return self._write(requests.delete(key, expected, guards), key, None, expected)

    async def _write(self, request: bytes, key: bytes, value: bytes | None, expected: int) -> WriteResult:
        transport, error, result, began = self._calls.live, None, None, self._loop.time()
        lineage = self._lineage
        floor, era = lineage.revision, lineage.era
        if transport is not None:
            try:
                result = read_result(await transport.unary(messages.TXN, request, limits.TRY))
            except EtcdError as caught:
                error = caught
        if result is None:
            result = await self._writer.write(Attempt(request, key, value, expected, began), transport, error)
        if result.ok:
            self._end_if_replaced(lineage.wrote(result.revision, floor, era))
        return result

    # -- watches -------------------------------------------------------------------------------------------------

    def watch(
        self,
        start: bytes,
        end: bytes,
        from_revision: int,
        *,
        prev_kv: bool = False,
        on_batch: Callable[[Batch], None],
        on_end: Callable[[EtcdError], None],
    ) -> WatchHandle:
        """Watch [start, end) from a revision on (0: from now). WatchSpec describes the callbacks."""
        spec = WatchSpec(start, end, from_revision, prev_kv, on_batch, on_end)
        watch = Watch(spec, self._streams, self)
        self._watches.add(watch)
        watch.task = self._scope.spawn(watch.run())
        if watch.task is None:
            asyncio.get_running_loop().call_soon(watch.end, Closed())
        return watch

    def discard(self, watch: Watch) -> None:
        """Remove a watch that has ended from the watches of this client."""
        self._watches.discard(watch)

    def observe(self, revision: int) -> None:
        """Record that the store has reached a revision."""
        self._lineage.observe(revision)

    def contradicted(self, what: str) -> None:
        """End all watches, since the store lacks changes that watches have delivered.

        ``what`` names a change.
        """
        self._end_if_replaced(self._lineage.contradicted(what))

    async def login_again(self, transport: Transport, began_at: float) -> None:
        """Get a new token for a connection whose token has expired; see Login.renew."""
        await self._login.renew(transport, began_at)

    # -- maintenance ------------------------------------------------------------------------------------------------

    async def status(self) -> Status:
        """Return the status of the member behind the connection for calls."""
        answer = messages.StatusResponse.FromString(await self._caller.read(messages.STATUS, b""))
        header = answer.header
        return Status(
            answer.version,
            header.cluster_id,
            header.member_id,
            answer.dbSize,
            answer.dbSizeInUse,
            answer.leader,
            header.revision,
            tuple(answer.errors),
        )

    async def compact(self, revision: int) -> None:
        """Compact the history before a revision. Raise Compacted if it is compacted already."""
        request = messages.CompactionRequest(revision=revision).SerializeToString()
        await self._caller.read(messages.COMPACT, request, limits.LONG_TRY)

    async def lease_grant(self, ttl: int) -> int:
        """Create a lease of ``ttl`` seconds, and return its id.

        A retry may create a second lease, which stays unused.
        """
        request = messages.LeaseGrantRequest(TTL=ttl).SerializeToString()
        raw = await self._caller.read(messages.LEASE_GRANT, request)
        return int(messages.LeaseGrantResponse.FromString(raw).ID)

    async def alarms(self) -> list[Alarm]:
        """Return the active alarms."""
        answer = messages.AlarmResponse.FromString(await self._caller.read(messages.ALARM, b""))
        return [Alarm(alarm.memberID, {1: "NOSPACE", 2: "CORRUPT"}.get(alarm.alarm, "")) for alarm in answer.alarms]

    async def disarm(self, alarm: Alarm) -> None:
        """Deactivate an alarm."""
        request = messages.AlarmRequest(action=2, memberID=alarm.member_id, alarm=alarm.kind)
        await self._caller.read(messages.ALARM, request.SerializeToString())

    async def defragment(self) -> None:
        """Release the space of compacted revisions.

        Meanwhile, a member of an external etcd serves no other request.
        """
        await self._caller.read(messages.DEFRAGMENT, b"", limits.MAINTENANCE_TRY)
