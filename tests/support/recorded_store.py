"""Write randomly to an embedded store and record each acknowledgement.

This is the process of the power cut test. Arguments: a directory, a seed, the number of writes, and SQLite's
``synchronous``. The file ``notes`` in the directory gets a line for each acknowledged write and compaction, and for
each key before it gets a lease.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random

from apiext.embedded.sqlite import SqliteBackend
from apiext.embedded.store import Store
from apiext.etcd.client import Etcd
from apiext.etcd.errors import EtcdError
from tests.support.embedded import client_of
from tests.support.polling import until

WRITERS = 8
CHECKPOINT = 12  # pages; small, so that even a short recording has many checkpoints


class Notes:
    """A file of lines, each written with one system call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


async def write(etcd: Etcd, notes: Notes, chance: Random, number: int, count: int) -> None:
    """Write keys that only this writer uses, one after the other."""
    known: dict[bytes, int] = {}
    leased: set[bytes] = set()
    for turn in range(count):
        key = b"w%d/%d" % (number, chance.randrange(6))
        value = b"%d/%d " % (number, turn) + chance.randbytes(chance.choice((0, 10, 500, 3000, 9000))).hex().encode()
        if key in leased:
            continue
        if key in known and chance.random() < 0.2:
            gone = await etcd.delete(key, known.pop(key))
            notes.add("gone", key.decode(), gone.revision)
            continue
        made = await etcd.update(key, value, known.get(key, 0))
        known[key] = made.revision
        notes.add("put", key.decode(), made.revision, value.decode())
        if chance.random() < 0.03:
            lease = await etcd.lease_grant(1)
            for part in range(4):
                own = b"lease/%d/%d" % (lease, part)
                notes.add("leased", own.decode(), lease)
                done = await etcd.create(own, b"leased", lease=lease)
                notes.add("put", own.decode(), done.revision, "leased")
        if chance.random() < 0.02:
            try:
                revision = max(2, await etcd.head_revision() - chance.randrange(40))
                await etcd.compact(revision)
            except EtcdError:
                continue
            notes.add("compacted", revision)


async def main(directory: Path, seed: int, count: int, synchronous: str) -> None:
    store = Store(SqliteBackend(directory / "store.db", 0))
    await store.open()
    assert isinstance(store.backend, SqliteBackend)
    store.backend._db.execute(f"PRAGMA synchronous={synchronous}")
    store.backend._db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT}")
    notes = Notes(directory / "notes")
    async with client_of(store) as etcd, asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(write(etcd, notes, Random(seed * 100 + number), number, count // WRITERS))
    await until(lambda: not any(record.lease and record.version for record in store.index.now.values()), every=0.05)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
