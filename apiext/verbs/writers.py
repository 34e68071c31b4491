"""Queue concurrent writes of one object, so that they run in turn after a conflict."""

import asyncio
from collections import deque

from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.verbs import limits, threads
from apiext.verbs.call import Call

Key = tuple[GroupResource, str, str]
"""(stored resource, namespace, name) of an object."""


class Queue:
    """The writers of one object: ``holder``, which has the turn, and ``waiting``, in order."""

    __slots__ = ("holder", "waiting")

    def __init__(self) -> None:
        self.holder: Writer | None = None
        self.waiting: deque[Writer] = deque()


Queues = dict[Key, Queue]
"""The queues of a server; an object without conflicting writers has no queue."""


class Writer:
    """A write in progress. It waits for a turn after a conflict, or if the object has a queue.

    After limits.WRITER_TURN the turn passes to the next writer, since a webhook that the write calls may write the same
    object, or never respond. The first writer continues without a turn. After another conflict it gets the next turn,
    which is twice as long. Turns only make conflicts rare. The transactions of the store detect conflicts, also with
    other servers.
    """

    __slots__ = ("_call", "_granted", "_key", "_queue", "_queues", "_seconds", "_timer")

    def __init__(self, queues: Queues, call: Call) -> None:
        self._queues = queues
        self._call = call
        self._key: Key = (call.served.names.stored_resource, call.namespace or "", call.name)
        self._queue: Queue | None = None  # the queue in which this writer waits or has its turn
        self._seconds = 0.0  # length of the last turn in seconds
        self._granted: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.leave()
        for settle in self._call.settled:
            settle(error is None)

    async def join(self) -> None:
        """Wait for a turn if the object already has a queue."""
        if self._key in self._queues:
            await self.turn()

    async def turn(self) -> bool:
        """Wait for a turn.

        Return True if this writer had to wait, so that the object must be read again. Return False if it got the turn
        at once, or already has it. Raise a 504 at the deadline of the call. If the client disconnects, an exception in
        ``Client.waiting`` ends the wait.
        """
        call = self._call
        if self._queue is not None or not call.name:  # the URL of a create names no object
            return False
        queue = self._queue = self._queues.setdefault(self._key, Queue())
        if queue.holder is None:
            queue.holder = self
            self._begin()
            return False
        granted = self._granted = asyncio.get_running_loop().create_future()
        if self._seconds:
            queue.waiting.appendleft(self)
        else:
            queue.waiting.append(self)
        client = call.client
        if client is not None:
            client.waiting = granted
        try:
            async with asyncio.timeout_at(call.deadline or None):
                await granted
        except TimeoutError as error:
            raise status.timeout(threads.DEADLINE_EXCEEDED) from error
        finally:
            if client is not None:
                client.waiting = None
        return True

    def leave(self) -> None:
        """End the turn, or the wait for a turn."""
        queue = self._queue
        if queue is None:
            return
        if queue.holder is self:
            assert self._timer is not None
            self._timer.cancel()
            self._pass_on()
        else:
            self._queue = None
            queue.waiting.remove(self)

    def _begin(self) -> None:
        self._seconds = self._seconds * 2 or limits.WRITER_TURN
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._pass_on)
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)

    def _pass_on(self) -> None:
        queue, self._queue = self._queue, None
        assert queue is not None
        if queue.waiting:
            queue.holder = queue.waiting.popleft()
            queue.holder._begin()
        else:
            del self._queues[self._key]
