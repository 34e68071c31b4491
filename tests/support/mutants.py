"""Starts a server that is broken on purpose, to prove that the fault tests would notice.

    python -m tests.support.mutants NAME serve [flags of apiext serve]

This is the one black-box test file that touches the server's code; the tests start it as a command and never import it.
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
    """Now and then a change reaches the cache, but no watcher."""
    publish, count = Fanout.publish, itertools.count(1)

    def mutated(self: Fanout, change: Any) -> None:
        if next(count) % ONE_IN:
            publish(self, change)

    Fanout.publish = mutated  # type: ignore[method-assign]


def stale_read() -> None:
    """Now and then a read shows the object as the read before saw it."""
    get, count, seen = CachedState.get, itertools.count(1), {}

    def mutated(self: CachedState, namespace: str, name: str, **kind: bool) -> Any:
        key = (self.resource, namespace, name)
        entry = get(self, namespace, name, **kind)
        old, seen[key] = seen.get(key), entry
        return old if old is not None and next(count) % ONE_IN == 0 else entry

    CachedState.get = mutated  # type: ignore[method-assign]


def no_revision_compare() -> None:
    """An update overwrites whatever is there by now."""
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
