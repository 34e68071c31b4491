"""Read the content of an embedded store's file, after the store has opened and closed it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.embedded import opened as opened_store

SUBS = 1 << 20


@dataclass
class StoredContent:
    """The changes in the file.

    ``puts`` are revision → (key, value), ``gone`` the (revision, key) of deletions.
    """

    head: int = 0
    compacted: int = 0
    puts: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    gone: set[tuple[int, bytes]] = field(default_factory=set)

    @property
    def revisions(self) -> set[int]:
        """All revisions with a put or a deletion."""
        return {*self.puts, *(revision for revision, _ in self.gone)}

    def changes_of(self, key: bytes) -> list[int]:
        """Return the revisions at which a key changed."""
        puts = [revision for revision, (name, _) in self.puts.items() if name == key]
        return puts + [revision for revision, name in self.gone if name == key]


async def opened(store: Path) -> StoredContent:
    """Open and close a store as a server does, then read its file with SQLite."""
    async with opened_store(store) as running:
        kept = StoredContent(running.durable, running.compacted)
    db = sqlite3.connect(store)
    for row, key, version, value in db.execute("SELECT id, key, version, value FROM kv"):
        if version:
            kept.puts[row // SUBS] = key, value
        else:
            kept.gone.add((row // SUBS, key))
    db.close()
    return kept
