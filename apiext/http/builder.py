"""Documents that are computed from the catalog are built beside the loop, each once for all who wait for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from apiext.catalog.served import Catalog
from apiext.http import limits

T = TypeVar("T")


class Builder:
    """Remembers documents with the catalog that they are computed from; threads of its own build those it has not.

    One thread is for documents about everything, another one for the rest, which would have to wait for those.
    """

    def __init__(self) -> None:
        self._pools: dict[bool, ThreadPoolExecutor] = {}
        self._pending: dict[tuple[int, str], asyncio.Future[Any]] = {}

    async def get(
        self, catalog: Catalog, key: str, make: Callable[[Catalog], T], *, slow: bool = False, large: bool = False
    ) -> T:
        """Return what ``make`` computes from the catalog; the key is ``make``'s own. What ``make`` raises is raised.

        ``slow`` is what takes long even for a few definitions; ``large`` is that, and about all of them.
        """
        known: T | None = catalog.known(key)
        if known is not None:
            return known
        if len(catalog.resources) <= limits.BUILD_INLINE and not (slow or large):
            made: T = catalog.remember(key, make)
            return made
        name = (catalog.number, key)
        pending = self._pending.get(name)
        if pending is None:
            pending = asyncio.get_running_loop().run_in_executor(self._pool(large), catalog.remember, key, make)
            self._pending[name] = pending
            pending.add_done_callback(lambda done: self._done(name, done))
        built: T = await asyncio.shield(pending)  # who leaves does not stop the others
        return built

    def _pool(self, large: bool) -> ThreadPoolExecutor:
        if large not in self._pools:
            self._pools[large] = ThreadPoolExecutor(1, "documents about everything" if large else "documents")
        return self._pools[large]

    def _done(self, name: tuple[int, str], done: asyncio.Future[Any]) -> None:
        self._pending.pop(name, None)
        if not done.cancelled():
            done.exception()  # whoever waits sees it; nobody may be left

    def close(self) -> None:
        """Stop the threads; what waits for them is cancelled."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
