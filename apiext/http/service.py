"""The parts of the server that all connections share."""

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct, field

from apiext.http.connection_limits import Unauthenticated
from apiext.http.exchange import Handler
from apiext.http.memory import Memory
from apiext.http.responses import Compressor, SecondClock
from apiext.scheduling.slices import Slices
from apiext.storage import limits as storage_limits

if TYPE_CHECKING:
    from apiext.auth.proxies import Proxies


class InFlight:
    """Counts the requests whose responses are not written yet.

    A watch counts until its stream begins.
    """

    __slots__ = ("_idle", "count")

    def __init__(self) -> None:
        self.count = 0
        self._idle = asyncio.Event()

    def begin(self) -> None:
        """Count a request."""
        self.count += 1

    def end(self) -> None:
        """Stop counting a request."""
        self.count -= 1
        if not self.count:
            self._idle.set()

    async def ended(self, seconds: float) -> bool:
        """Wait until no request is in flight; return False if that takes longer than ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                while self.count:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True


class Service(Struct, eq=False):
    """The shared parts; ``answer`` handles a request.

    ``large_heads`` and ``lost_connections`` distribute work over iterations of the event loop: the parsing of large
    heads, and the release of watches whose clients have disconnected.
    """

    answer: Handler
    memory: Memory
    unauthenticated: Unauthenticated
    clock: SecondClock
    compressor: Compressor
    proxies: "Proxies | None" = None
    lost_connections: Slices = field(default_factory=lambda: Slices(storage_limits.PUMP_SLICE))
    large_heads: Slices = field(default_factory=lambda: Slices(1))
    in_flight: InFlight = field(default_factory=InFlight)
