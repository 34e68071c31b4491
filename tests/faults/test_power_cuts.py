"""A power cut at any time: the store opens with all acknowledged writes.

The store has no parts of transactions.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.disk_record import Call, Disk, environment, read, recorder
from tests.support import kept_in_store
from tests.support.processes import ROOT

WRITES, IMAGES = 400, 600
LONG_WRITES, LONG_IMAGES = 2000, 5000
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # for images: syncs are fast without a disk


@dataclass
class Acknowledged:
    """The notes of the writer until a time."""

    puts: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # revision → (key, value)
    gone: dict[int, bytes] = field(default_factory=dict)
    leases: dict[int, set[bytes]] = field(default_factory=dict)
    compacted: int = 0

    def take(self, line: bytes) -> None:
        what, *words = line.split(b" ", 3)
        if what == b"put":
            self.puts[int(words[1])] = words[0], words[2]
        elif what == b"gone":
            self.gone[int(words[1])] = words[0]
        elif what == b"leased":
            self.leases.setdefault(int(words[1]), set()).add(words[0])
        else:
            self.compacted = max(self.compacted, int(words[0]))


def record_writes(tmp_path: Path, seed: int, writes: int, synchronous: str) -> list[Call]:
    """Run the writer and return the recorded calls on its files."""
    library, directory, record = recorder(tmp_path), tmp_path / "store", tmp_path / "record"
    directory.mkdir()
    subprocess.run(
        [sys.executable, "-m", "tests.support.recorded_store", str(directory), str(seed), str(writes), synchronous],
        cwd=ROOT, env={**os.environ, **environment(library, directory, record)}, check=True, timeout=120,
    )  # fmt: skip
    return list(read(record))


def check_images(calls: Sequence[Call], images: int, chance: random.Random) -> list[str]:
    """Check this number of images of power cuts at random times; return the violations."""
    wrong: list[str] = []
    moments = sorted(chance.sample(range(len(calls)), min(images, len(calls))))
    each = -(-images // len(moments))
    disk, told = Disk(), Acknowledged()
    at = 0
    for moment in moments:
        for call in calls[at : moment + 1]:
            if call.file == "notes":
                for line in call.data.splitlines():
                    told.take(line)
            elif call.file in ("store.db", "store.db-wal"):
                disk.take(call)
        at = moment + 1
        for _ in range(each):
            with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
                for name, content in disk.image(chance).items():
                    (Path(scratch) / name).write_bytes(content)
                wrong += [
                    f"after call {moment}: {fault}" for fault in image_violations(Path(scratch) / "store.db", told)
                ]
    return wrong


def image_violations(store: Path, told: Acknowledged) -> list[str]:
    """Open an image and return its violations."""
    try:
        kept = asyncio.run(kept_in_store.opened(store))
    except Exception as error:  # outermost: any error of opening is a violation
        return [f"it does not open: {error!r}"]
    found: list[str] = []
    for revision, (key, value) in told.puts.items():
        if revision > kept.compacted:
            if kept.puts.get(revision) != (key, value):
                found.append(f"the put of {key!r} at {revision} is gone")
        elif not any(later >= revision for later in kept.changes_of(key)) and kept.head == revision:
            found.append(f"the newest put of {key!r} at {revision} is gone")
    for revision, key in told.gone.items():
        if revision > kept.compacted and (revision, key) not in kept.gone:
            found.append(f"the deletion of {key!r} at {revision} is gone")
    if told.compacted > max(kept.compacted, 0):
        found.append(f"the compaction to {told.compacted} is gone")
    have = kept.revisions
    if missing := [revision for revision in range(max(kept.compacted, 1) + 1, kept.head + 1) if revision not in have]:
        found.append(f"revisions {missing[:5]} are missing below the head {kept.head}")
    for lease, keys in told.leases.items():
        ends = {revision for revision, key in kept.gone if key in keys}
        if len(ends) > 1:
            found.append(f"lease {lease} ended in parts, at {sorted(ends)}")
    return found


def seed() -> int:
    found = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={found}")
    return found


@pytest.mark.rows("ETC-005")
@pytest.mark.parametrize(
    ("writes", "images"),
    [(WRITES, IMAGES), pytest.param(LONG_WRITES, LONG_IMAGES, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_power_cut_loses_no_acknowledged_write(tmp_path: Path, writes: int, images: int) -> None:
    chosen = seed()
    calls = record_writes(tmp_path, chosen, writes, "FULL")
    syncs = sum(call.kind == "s" and call.file == "store.db" for call in calls)
    assert syncs >= 5, f"only {syncs} checkpoints: too few to judge by"
    found = check_images(calls, images, random.Random(chosen))
    assert not found, f"{len(found)} faults:\n" + "\n".join(found[:20])


def test_checker_detects_a_store_without_sync(tmp_path: Path) -> None:
    calls = record_writes(tmp_path, 1, WRITES // 2, "OFF")
    assert check_images(calls, 100, random.Random(1)), "a store without syncs lost nothing: the images prove nothing"
