"""The etcd calls of the store: typed, guarded, resumed, and retried where that is safe."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
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
    Unavailable,
    of_etcd,
)
from apiext.etcd.lineage import Lineage
from apiext.etcd.scope import Scope, Seldom, log
from apiext.etcd.transport import TLS, Dial, Transport, parse_endpoint
from apiext.etcd.values import Alarm, Batch, KeyValue, RangeResult, Status, WatchEvent, WriteResult, key_value
from apiext.etcd.versions import answers_progress, parse_version
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
Waiter = tuple[asyncio.Future[int], float]  # with the loop time of the call
Outcome = Coroutine[Any, Any, WriteResult]
PROBE = b"\x00"  # a key whose range contains nothing, so that the answer is the head revision only


def prefix_end(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with the prefix; ``b"\\0"``, all keys, for an empty one."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else b"\x00"


def _own_dial() -> Dial:
    from apiext.etcd.dial import dial  # not imported for a store in this process

    return dial


class Etcd:
    """A client of one etcd cluster: one connection for calls, one for watches."""

    progress_requests_ok: bool = False
    version: str = ""
    """The version of the member of the watches' connection."""
    stuck: Callable[[], bool]
    """Returns whether the store behind ``transport`` answers reads, but no writes; never true for etcd."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        transport: Dial | None = None,
        tls: TLS | None = None,
        user: str = "",
        password: str = "",
        patience: float = limits.PATIENCE,
        probe: bytes = PROBE,
    ) -> None:
        """Use ``transport`` to connect, by default over HTTP/2.

        ``probe`` is a key that never exists. It is below the prefix, in case the etcd user may read only that.
        """
        dial, tls = transport or _own_dial(), tls or TLS()
        where = [parse_endpoint(endpoint) for endpoint in endpoints]
        self._scope = Scope()
        self._login = Login(user, password)
        self._calls = Channel(where, tls, dial, self._scope, self._greet_for_calls)
        self._streams = Channel(where, tls, dial, self._scope, self._greet_for_streams)
        self._caller = Caller(self._calls, self._login, patience)
        self._writer = Writer(self._caller)
        self.stuck = lambda: False
        self._nobody = probe
        self._probe = messages.RangeRequest(key=probe, count_only=True).SerializeToString()
        self._lineage = Lineage()
        self._asking: list[Waiter] | None = None  # callers that the current probe answers
        self._next: list[Waiter] = []  # callers that arrived after that probe was sent
        self._asked = self._answered = 0.0  # loop times of the last probe, and of the last answered probe
        self._failed = False  # whether the last completed probe has failed
        self._watches: set[Watch] = set()
        self.closed_watches = Seldom()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self, within: float = inf) -> None:
        """Connect within so many seconds; raise Unavailable or AuthError with the reason if that fails."""
        patience, self._caller.patience = self._caller.patience, min(within, self._caller.patience)
        self._loop = asyncio.get_running_loop()  # cached, since the look-up of the running loop is a system call
        await self._scope.open()
        self._calls.start()
        self._streams.start()
        try:
            await self.head_revision()
            deadline = now() + self._caller.patience
            await self._streams.connection(deadline)
        except BaseException:
            await self.close()
            raise
        self._caller.patience = patience
        self._scope.spawn(self._pulse())
        self._scope.spawn(self._listen())

    async def close(self) -> None:
        """End watches (``on_end`` gets Closed), stop reconnecting, close the connections."""
        if self._closed:
            return
        self._closed = True
        for watch in list(self._watches):
            watch.end(Closed())
        await self._scope.close()
        await self._calls.close(limits.CLOSE_PATIENCE)
        await self._streams.close(limits.CLOSE_PATIENCE)

    async def over(self) -> None:
        """Return when the client is closed; raise the error that closed it early, which is a bug."""
        await self._scope.over()

    @property
    def connected(self) -> bool:
        """Report whether both connections are open."""
        return self._calls.live is not None and self._streams.live is not None

    @property
    def answering(self) -> bool:
        """Report whether etcd has answered any request within the last seconds (limits.PULSE and limits.SILENCE)."""
        asked_late = self._asking is not None and self._loop.time() - self._asked >= limits.SILENCE
        return not (self._failed or asked_late or self.stuck())

    async def _pulse(self) -> None:
        while True:
            await asyncio.sleep(max(self._answered + limits.PULSE - self._loop.time(), limits.PULSE / 4))
            if self._loop.time() - self._answered >= limits.PULSE:
                with suppress(EtcdError):
                    await self.head_revision()

    async def _listen(self) -> None:
        """Drop a watches' connection whose member is silent, although it can answer from its memory."""
        question = requests.get(self._nobody, 0, serializable=True)
        while True:
            await asyncio.sleep(limits.PULSE)
            transport, began = self._streams.live, self._loop.time()
            if transport is None or transport.heard > began - limits.PULSE:
                continue
            try:
                await transport.unary(messages.RANGE, question, limits.TRY)
            except EtcdError as error:
                if error.code == DEADLINE_EXCEEDED and transport.heard <= began:
                    self._streams.retire(transport, "no byte on the connection for watches")

    async def _greet_for_calls(self, transport: Transport) -> None:
        await self._greet(transport)

    async def _greet(self, transport: Transport) -> bytes | None:
        """Log in and return the status response, None if only administrators get it; fail if the server is not etcd."""
        await self._login.greet(transport)
        try:
            return await transport.unary(messages.STATUS, b"", limits.TRY)
        except EtcdError as error:
            if not of_etcd(error):
                raise EtcdError(UNAVAILABLE, error.message, sent=False) from error
            return None if error.code == PERMISSION_DENIED else b""

    async def _greet_for_streams(self, transport: Transport) -> None:
        raw = await self._greet(transport)
        self.version = messages.StatusResponse.FromString(raw or b"").version
        # versions before 3.6 return it to all users
        self.progress_requests_ok = raw is None or answers_progress(parse_version(self.version))

    # -- reads ---------------------------------------------------------------------------------------------------

    async def get(self, key: bytes, *, revision: int = 0) -> KeyValue | None:
        """Return one key, at a revision or now; Compacted, FutureRevision, Unavailable, AuthError."""
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
        """Return the keys of [start, end) in order, at most ``limit``; errors as of get."""
        request = messages.RangeRequest(
            key=start,
            range_end=end,
            limit=limit,
            revision=revision,
            keys_only=keys_only,
        ).SerializeToString()
        answer = messages.RangeResponse.FromString(await self._caller.read(messages.RANGE, request, limits.LONG_TRY))
        return RangeResult([key_value(kv) for kv in answer.kvs], answer.more, answer.count, answer.header.revision)

    async def head_revision(self) -> int:
        """Return a revision that is not older than this call. Waiting callers share the next probe."""
        waiter: asyncio.Future[int] = self._loop.create_future()
        self._next.append((waiter, self._loop.time()))
        if self._asking is None:
            self._ask_head()
        return await waiter

    def _ask_head(self) -> None:
        asking, self._next = self._next, []
        self._asking = asking
        self._asked = self._loop.time()
        if self._scope.spawn(self._probe_head(asking, self._lineage.revision, self._lineage.era)) is None:
            self._head_failed(asking, Closed())

    async def _probe_head(self, asking: list[Waiter], floor: int, era: int) -> None:
        oldest = next((came for waiter, came in asking if not waiter.done()), self._asked)
        try:
            raw = await self._caller.read(messages.RANGE, self._probe, since=oldest)
            header = messages.RangeResponse.FromString(raw).header
        except EtcdError as error:
            self._head_failed(asking, error)
            return
        except asyncio.CancelledError:  # the client is closed
            waiting, self._next = [*asking, *self._next], []
            self._head_failed(waiting, Closed())
            raise
        self._answered, self._failed = self._loop.time(), False
        self._read_again(self._lineage.compare(header.cluster_id, header.raft_term, header.revision, floor, era))
        for waiter, _ in asking:
            if not waiter.done():
                waiter.set_result(header.revision)
        self._head_done()

    def _read_again(self, fault: StoreReplaced | None) -> None:
        if fault is not None:
            log.error("etcd: %s; everything is read again", fault.message)
            for watch in list(self._watches):
                watch.end(fault)

    def _head_failed(self, asking: list[Waiter], error: EtcdError) -> None:
        """Fail the callers whose deadline is within ``limits.LAST_TRY``, or all callers if a retry is useless."""
        self._failed = True
        wait = self._caller.patience - limits.LAST_TRY if isinstance(error, Unavailable) else 0.0
        late = self._loop.time() - wait
        for waiter, came in asking:
            if not waiter.done() and came <= late:
                waiter.set_exception(error)
        self._next[:0] = asking
        self._head_done()

    def _head_done(self) -> None:
        self._asking = None
        self._next = [one for one in self._next if not one[0].done()]
        if self._next:
            self._ask_head()

    # -- writes --------------------------------------------------------------------------------------------------

    # these return coroutines of ``_write``: a coroutine of their own would cost time for each write
    def create(self, key: bytes, value: bytes, *, guards: Guards = (), lease: int = 0) -> Outcome:
        """Put a key that must not exist; TooLarge, OutOfSpace, Overloaded, Unavailable, UnknownOutcome, AuthError."""
        return self._write(requests.put(key, value, 0, guards, lease), key, value, 0)

    def update(self, key: bytes, value: bytes, expected: int, *, guards: Guards = (), lease: int = 0) -> Outcome:
        """Put a key that must have the mod_revision ``expected`` (0: must not exist); errors as of create."""
        return self._write(requests.put(key, value, expected, guards, lease), key, value, expected)

    def delete(self, key: bytes, expected: int, *, guards: Guards = ()) -> Outcome:
        """Delete a key that must have the mod_revision ``expected``; the result has the revision of the deletion."""
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
            self._read_again(lineage.wrote(result.revision, floor, era))
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
        """Watch [start, end) from a revision on (0: from now); watch.py describes the callbacks."""
        spec = WatchSpec(start, end, from_revision, prev_kv, on_batch, on_end)
        watch = Watch(spec, self._streams, self)
        self._watches.add(watch)
        watch.task = self._scope.spawn(watch.run())
        if watch.task is None:
            asyncio.get_running_loop().call_soon(watch.end, Closed())
        return watch

    def forget(self, watch: Watch) -> None:
        """Drop a watch that has ended."""
        self._watches.discard(watch)

    def saw(self, revision: int) -> None:
        """Record that the store has reached a revision."""
        self._lineage.saw(revision)

    def contradicted(self, what: str) -> None:
        """End all watches: the store does not have the changes that they have delivered."""
        self._read_again(self._lineage.contradicted(what))

    async def login_again(self, transport: Transport, failed_at: float) -> None:
        """Get a new token for a connection whose token has expired."""
        await self._login.renew(transport, failed_at)

    # -- the rest ------------------------------------------------------------------------------------------------

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
        """Compact the history before a revision; Compacted if that was done already."""
        request = messages.CompactionRequest(revision=revision).SerializeToString()
        await self._caller.read(messages.COMPACT, request, limits.LONG_TRY)

    async def lease_grant(self, ttl: int) -> int:
        """Return the id of a new lease of ``ttl`` seconds; a retry may leave an unused lease until it expires."""
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
        """Release the space of compacted revisions; the member answers no other request meanwhile."""
        await self._caller.read(messages.DEFRAGMENT, b"", limits.MAINTENANCE_TRY)
