"""Reads of the head revision, which is the newest one of the store.

Callers that wait at the same time share a read.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from apiext.etcd import limits, messages
from apiext.etcd.calls import Caller
from apiext.etcd.errors import Closed, EtcdError, StoreReplaced, Unavailable
from apiext.etcd.lineage import Lineage
from apiext.etcd.scope import Scope

Waiter = tuple[asyncio.Future[int], float]  # (future of the revision, event loop time of the call)


class HeadProbe:
    """Sends probes.

    A probe reads a key that does not exist; the response contains the head revision. ``on_response`` is called after
    each response, with an error if the store was replaced, else with None.
    """

    def __init__(
        self,
        caller: Caller,
        scope: Scope,
        lineage: Lineage,
        key: bytes,
        on_response: Callable[[StoreReplaced | None], None],
    ) -> None:
        self._caller = caller
        self._scope = scope
        self._lineage = lineage
        self._on_response = on_response
        self._request = messages.RangeRequest(key=key, count_only=True).SerializeToString()
        self._probing: list[Waiter] | None = None  # callers that wait for the running probe, None if no probe runs
        self._waiting: list[Waiter] = []  # callers that wait for the next probe
        self._probed_at = self._answered_at = 0.0  # event loop times of the last probe and of the last response
        self._failed = False  # True if the last completed probe failed
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()  # cached, since asyncio.get_running_loop() makes a system call

    @property
    def answering(self) -> bool:
        """True if the last completed probe did not fail, and no running probe is late.

        A probe is late after limits.PROBE_TIMEOUT seconds.
        """
        is_late = self._probing is not None and self._loop.time() - self._probed_at >= limits.PROBE_TIMEOUT
        return not (self._failed or is_late)

    async def revision(self) -> int:
        """Return the head revision at the time of this call or later; raise EtcdError.

        Callers that wait at the same time share the next probe.
        """
        waiter: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((waiter, self._loop.time()))
        if self._probing is None:
            self._start_probe()
        return await waiter

    async def run(self) -> None:
        """Send a probe whenever there was no response for ``limits.PROBE_EVERY`` seconds."""
        while True:
            await asyncio.sleep(max(self._answered_at + limits.PROBE_EVERY - self._loop.time(), limits.PROBE_EVERY / 4))
            if self._loop.time() - self._answered_at >= limits.PROBE_EVERY:
                with suppress(EtcdError):
                    await self.revision()

    def _start_probe(self) -> None:
        waiters, self._waiting = self._waiting, []
        self._probing = waiters
        self._probed_at = self._loop.time()
        if self._scope.spawn(self._probe(waiters, self._lineage.revision, self._lineage.era)) is None:
            self._fail(waiters, Closed())

    async def _probe(self, waiters: list[Waiter], floor: int, era: int) -> None:
        oldest = next((called_at for waiter, called_at in waiters if not waiter.done()), self._probed_at)
        try:
            raw = await self._caller.read(messages.RANGE, self._request, since=oldest)
            header = messages.RangeResponse.FromString(raw).header
        except EtcdError as error:
            self._fail(waiters, error)
            return
        except asyncio.CancelledError:  # the client is closed
            waiting, self._waiting = [*waiters, *self._waiting], []
            self._fail(waiting, Closed())
            raise
        self._answered_at, self._failed = self._loop.time(), False
        self._on_response(self._lineage.compare(header.cluster_id, header.raft_term, header.revision, floor, era))
        for waiter, _ in waiters:
            if not waiter.done():
                waiter.set_result(header.revision)
        self._end()

    def _fail(self, waiters: list[Waiter], error: EtcdError) -> None:
        """Raise the error in callers whose budget ends within ``limits.LAST_TRY`` seconds.

        The other callers wait for a retry. If a retry cannot help, raise the error in all callers.
        """
        self._failed = True
        wait = self._caller.budget - limits.LAST_TRY if isinstance(error, Unavailable) else 0.0
        late = self._loop.time() - wait
        for waiter, called_at in waiters:
            if not waiter.done() and called_at <= late:
                waiter.set_exception(error)
        self._waiting[:0] = waiters
        self._end()

    def _end(self) -> None:
        self._probing = None
        self._waiting = [one for one in self._waiting if not one[0].done()]
        if self._waiting:
            self._start_probe()
