"""Read the file of an embedded store while its server runs, without code of the server."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.support.etcd_reader import Event

SUBS = 1 << 20


def history(store: Path, prefix: str) -> list[Event]:
    """Return all changes below a prefix that were not compacted, in order."""
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=20)
    try:
        rows = db.execute("SELECT id, key, version, value FROM kv ORDER BY id").fetchall()
    finally:
        db.close()
    return [
        Event(key.decode(), row // SUBS, json.loads(value) if version else None, version == 1)
        for row, key, version, value in rows
        if key.decode().startswith(prefix)
    ]
