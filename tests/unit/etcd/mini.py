"""A simulated etcd as a transport.

It has real semantics for the calls of the server, and faults that tests inject.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apiext.etcd import messages
from apiext.etcd.errors import (
    DEADLINE_EXCEEDED,
    INVALID_ARGUMENT,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    EtcdError,
)
from apiext.etcd.transport import TLS, Endpoint, Spawn

LOST = EtcdError(UNAVAILABLE, "connection lost: reset")
UNSENT = EtcdError(UNAVAILABLE, "stream refused", sent=False)
SLOW = EtcdError(UNAVAILABLE, "etcdserver: request timed out")


@dataclass
class Fault:
    """The fault of the next call of a path.

    With ``applied``, the call has its effect before the error.
    """

    path: str
    error: EtcdError | None = None  # None: no response until the deadline
    applied: bool = False
    then: Callable[[], None] = lambda: None


@dataclass
class Mini:
    """The store and its members. Endpoints in ``down`` refuse connections."""

    revision: int = 1
    cluster_id: int = 7
    term: int = 2
    compacted: int = 0
    version: str = "3.5.13"
    password: str = ""
    token: str = "t1"
    down: set[str] = field(default_factory=set)
    hollow: dict[str, EtcdError] = field(default_factory=dict)  # by endpoint without etcd: its response to all calls
    faults: deque[Fault] = field(default_factory=deque)
    calls: list[tuple[str, str]] = field(default_factory=list)  # (endpoint, path)
    links: list["Link"] = field(default_factory=list)
    kvs: dict[bytes, Any] = field(default_factory=dict)
    history: list[tuple[int, Any]] = field(default_factory=list)
    repeat_events: bool = False  # like servers before 3.5.8
    fragments: int = 0  # events per message; 0: no limit
    mute_watches: bool = False
    refusals: deque[str] = field(default_factory=deque)  # reasons with which the next watches are cancelled

    # -- the test's side

    async def dial(self, endpoint: Endpoint, _tls: TLS, _spawn: Spawn) -> "Link":
        if str(endpoint) in self.down:
            raise EtcdError(UNAVAILABLE, f"{endpoint}: refused", sent=False)
        link = Link(self, str(endpoint))
        self.links.append(link)
        return link

    def count(self, path: str) -> int:
        return sum(1 for _, called in self.calls if called == path)

    def put(self, key: bytes, value: bytes) -> int:
        """Write a key like another client; return the revision."""
        return self.put_all({key: value})

    def put_all(self, values: Mapping[bytes, bytes]) -> int:
        """Write several keys at one revision; return it."""
        self.revision += 1
        for key, value in values.items():
            self._put(key, value)
        self.tell()
        return self.revision

    def delete(self, key: bytes) -> int:
        self.revision += 1
        self._delete(key)
        self.tell()
        return self.revision

    def cut(self) -> None:
        """Abort all connections."""
        for link in list(self.links):
            link.abort()

    def tell(self) -> None:
        for link in self.links:
            for stream in list(link.streams):
                stream.tell()

    # -- etcd's side

    def header(self, answer: Any) -> Any:
        answer.header.cluster_id, answer.header.revision, answer.header.raft_term = (
            self.cluster_id,
            self.revision,
            self.term,
        )
        return answer

    def call(self, path: str, raw: bytes) -> bytes:
        return bytes(getattr(self, "on_" + path.rpartition("/")[2].lower())(raw).SerializeToString())

    def on_status(self, _raw: bytes) -> Any:
        if self.version.startswith("3.6"):
            raise EtcdError(PERMISSION_DENIED, "etcdserver: permission denied")
        return self.header(messages.StatusResponse(version=self.version))

    def on_authenticate(self, raw: bytes) -> Any:
        if messages.AuthenticateRequest.FromString(raw).password != self.password:
            raise EtcdError(INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password")
        return messages.AuthenticateResponse(token=self.token)

    def on_range(self, raw: bytes) -> Any:
        request = messages.RangeRequest.FromString(raw)
        if request.revision > self.revision:
            raise EtcdError(OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
        if 0 < request.revision < self.compacted:
            raise EtcdError(OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
        return self.header(self._range(request))

    def _range(self, request: Any) -> Any:
        answer = messages.RangeResponse()
        kvs = self._at(request.revision) if request.revision else self.kvs
        for key in sorted(kvs):
            if key == request.key or (request.range_end and request.key <= key < request.range_end):
                answer.count += 1
                if not request.count_only:
                    answer.kvs.add().CopyFrom(kvs[key])
        return answer

    def _at(self, revision: int) -> dict[bytes, Any]:
        kvs = {}
        for _, event in filter(lambda change: change[0] <= revision, self.history):
            kvs[event.kv.key] = event.kv
            if event.type == 1:
                del kvs[event.kv.key]
        return kvs

    def restore(self, revision: int) -> None:
        """Return to a revision, as with an older copy of the data directory.

        The cluster ID and the term stay.
        """
        self.cut()
        self.history = [change for change in self.history if change[0] <= revision]
        self.kvs, self.revision = self._at(revision), revision

    def on_txn(self, raw: bytes) -> Any:
        request = messages.TxnRequest.FromString(raw)
        answer = messages.TxnResponse(
            succeeded=all(
                (self.kvs[c.key].mod_revision if c.key in self.kvs else 0) == c.mod_revision for c in request.compare
            )
        )
        if answer.succeeded:
            self.revision += 1
        for op in request.success if answer.succeeded else request.failure:
            response = answer.responses.add()
            if op.HasField("request_put"):
                self._put(op.request_put.key, op.request_put.value)
                response.response_put.SetInParent()
            elif op.HasField("request_delete_range"):
                self._delete(op.request_delete_range.key)
                response.response_delete_range.SetInParent()
            else:
                response.response_range.CopyFrom(self._range(op.request_range))
        asyncio.get_running_loop().call_soon(self.tell)
        return self.header(answer)

    def _put(self, key: bytes, value: bytes) -> None:
        old = self.kvs.get(key)
        kv = messages.message_class("KeyValue")(key=key, value=value, mod_revision=self.revision)
        kv.create_revision = old.create_revision if old else self.revision
        kv.version = old.version + 1 if old else 1
        self.kvs[key] = kv
        event = messages.message_class("Event")(type=0, kv=kv)
        if old:
            event.prev_kv.CopyFrom(old)
        self.history.append((self.revision, event))

    def _delete(self, key: bytes) -> None:
        old = self.kvs.pop(key, None)
        event = messages.message_class("Event")(type=1, prev_kv=old)
        event.kv.key, event.kv.mod_revision = key, self.revision
        self.history.append((self.revision, event))


class Link:
    """One connection (the Transport port)."""

    def __init__(self, mini: Mini, endpoint: str) -> None:
        self.mini, self.endpoint = mini, endpoint
        self.loop = asyncio.get_running_loop()
        self.live = True
        self.frozen = False  # whether the member sends nothing on this connection
        self.last_byte_at = self.last_response_at = self.loop.time()
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self.token = ""
        self.open: set[asyncio.Future[bytes]] = set()
        self.streams: set[MiniStream] = set()

    def unary(self, path: str, message: bytes, timeout: float) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self.loop.create_future()
        if not self.live:
            answer.set_exception(EtcdError(UNAVAILABLE, "connection closed", sent=False))
            return answer
        self.mini.calls.append((self.endpoint, path))
        self.open.add(answer)
        answer.add_done_callback(self.open.discard)
        if self.endpoint in self.mini.hollow:
            self.loop.call_soon(self._fail, answer, self.mini.hollow[self.endpoint])
            return answer
        if self.frozen:
            self.loop.call_later(timeout, self._fail, answer, EtcdError(DEADLINE_EXCEEDED, "deadline exceeded"))
            return answer
        fault = next((fault for fault in self.mini.faults if fault.path == path), None)
        if fault is None:
            self.loop.call_soon(self._answer, answer, path, message)
            return answer
        self.mini.faults.remove(fault)
        if fault.applied:
            self.mini.call(path, message)
        fault.then()
        if fault.error is None:
            self.loop.call_later(timeout, self._fail, answer, EtcdError(DEADLINE_EXCEEDED, "deadline exceeded"))
        else:
            self.loop.call_soon(self._fail, answer, fault.error)
        return answer

    def _answer(self, answer: asyncio.Future[bytes], path: str, message: bytes) -> None:
        if answer.done():
            return
        self.last_byte_at = self.last_response_at = self.loop.time()
        try:
            if self.mini.password and self.token != self.mini.token and not path.endswith(("Authenticate", "Status")):
                raise EtcdError(UNAUTHENTICATED, "etcdserver: invalid auth token")
            answer.set_result(self.mini.call(path, message))
        except EtcdError as error:
            answer.set_exception(error)

    def _fail(self, answer: asyncio.Future[bytes], error: EtcdError) -> None:
        if not answer.done():
            answer.set_exception(error)

    def stream(
        self, path: str, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]
    ) -> "MiniStream":
        if not self.live:
            raise EtcdError(UNAVAILABLE, "connection closed", sent=False)
        self.mini.calls.append((self.endpoint, path))
        stream = MiniStream(self, on_message, on_end)
        self.streams.add(stream)
        return stream

    def set_token(self, token: str) -> None:
        self.token = token

    def drain(self) -> None:
        self.live = False
        if not self.lost.done():
            self.lost.set_result(None)
        for stream in list(self.streams):
            stream.finish(LOST)
        if not self.closed.done():
            self.closed.set_result(None)
        if self in self.mini.links:
            self.mini.links.remove(self)

    def abort(self) -> None:
        self.drain()
        for answer in list(self.open):
            self._fail(answer, LOST)


class MiniStream:
    """One watch stream (the Stream port)."""

    def __init__(self, link: Link, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]) -> None:
        self.link, self.on_message, self.on_end = link, on_message, on_end
        self.create: Any = None
        self.next = 0

    def send(self, message: bytes) -> None:
        request = messages.WatchRequest.FromString(message)
        if request.HasField("create_request"):
            self.create = request.create_request
            if self.link.endpoint in self.link.mini.hollow:
                self.link.loop.call_soon(self.finish, self.link.mini.hollow[self.link.endpoint])
            elif not self.link.mini.mute_watches:
                self.link.loop.call_soon(self._created)
        elif request.HasField("progress_request"):
            self.link.loop.call_soon(self.say, messages.WatchResponse(watch_id=-1))

    def cancel(self) -> None:
        self.link.streams.discard(self)

    def finish(self, error: EtcdError) -> None:
        if self in self.link.streams:
            self.link.streams.discard(self)
            self.on_end(error)

    def say(self, answer: Any) -> None:
        if self in self.link.streams and not self.link.frozen:
            self.on_message(self.link.mini.header(answer).SerializeToString())

    def _created(self) -> None:
        mini = self.link.mini
        if mini.refusals:
            self.say(messages.WatchResponse(created=True, canceled=True, cancel_reason=mini.refusals.popleft()))
            return
        self.say(messages.WatchResponse(created=True))
        self.next = self.create.start_revision or mini.revision + 1
        if self.next <= mini.compacted:
            self.say(messages.WatchResponse(canceled=True, compact_revision=mini.compacted))
            return
        if mini.repeat_events:
            self.next = max(1, self.next - 2)
        self.tell()

    def tell(self) -> None:
        if not self.next or self not in self.link.streams:
            return
        events = [event for revision, event in self.link.mini.history if revision >= self.next]
        self.next = self.link.mini.revision + 1
        size = self.link.mini.fragments or len(events)
        for at in range(0, len(events), size or 1):
            part = messages.WatchResponse(fragment=at + size < len(events))
            part.events.extend(events[at : at + size])
            self.say(part)
