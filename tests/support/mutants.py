"""Start a server with a deliberate bug, to prove that the fault tests find it.

    python -m tests.support.mutants NAME serve [flags of apiext serve]

This module imports the server's code. So the fault tests start it as a command and never import it.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from apiext.__main__ import main
from apiext.storage.etcd_store import EtcdStore
from apiext.storage.fanout import Fanout
from apiext.storage.state import CachedState

ONE_IN = 25


def dropped_event() -> None:
    """Put some changes only into the cache, and deliver them to no watcher."""
    publish, count = Fanout.publish, itertools.count(1)

    def mutated(self: Fanout, change: Any) -> None:
        if next(count) % ONE_IN:
            publish(self, change)

    Fanout.publish = mutated  # type: ignore[method-assign]


def stale_read() -> None:
    """Let some reads return the state that the previous read of the same object returned."""
    get, count, seen = CachedState.get, itertools.count(1), {}

    def mutated(self: CachedState, namespace: str, name: str, **kind: bool) -> Any:
        key = (self.resource, namespace, name)
        entry = get(self, namespace, name, **kind)
        old, seen[key] = seen.get(key), entry
        return old if old is not None and next(count) % ONE_IN == 0 else entry

    CachedState.get = mutated  # type: ignore[method-assign]


def no_revision_compare() -> None:
    """Let updates overwrite the stored object without a comparison of revisions."""
    put = EtcdStore.put

    async def mutated(self: EtcdStore, key: str, raw: bytes, expected: int, *others: Any) -> Any:
        if expected and (now := await self.get(key)) is not None:
            expected = now.mod_revision
        return await put(self, key, raw, expected, *others)

    EtcdStore.put = mutated  # type: ignore[method-assign]


MUTANTS = {
    "dropped-event": dropped_event,
    "stale-read": stale_read,
    "no-revision-compare": no_revision_compare,
}

if __name__ == "__main__":
    MUTANTS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
