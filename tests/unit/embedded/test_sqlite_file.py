"""The file of an embedded store: opening, error messages, and the state after a crash."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from apiext.embedded.connection import Connection
from apiext.embedded.faults import StoreFault, StoreInUse
from apiext.embedded.sqlite import VACUUMED, SqliteBackend
from apiext.embedded.store import Store
from apiext.etcd import errors, messages, requests
from apiext.etcd.errors import EtcdError
from apiext.etcd.watch import Batch
from tests.support.embedded import client_of, opened


async def fill(path: Path) -> None:
    async with opened(path) as store, client_of(store) as etcd:
        made = await etcd.create(b"a", b"1")
        await etcd.update(b"a", b"2", made.revision)
        await etcd.create(b"b", b"\x00" * 5000)


async def open_error(path: Path) -> str:
    store = Store(SqliteBackend(path))
    with pytest.raises(StoreFault) as refused:
        await store.open()
    return str(refused.value)


def run_sql(path: Path, *statements: str) -> None:
    with sqlite3.connect(path, isolation_level=None) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


async def test_a_new_file_is_set_up_for_durability(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        assert isinstance(store.backend, SqliteBackend)
        db = store.backend._db
        told = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "auto_vacuum")]
        assert told == ["wal", 2, 2]
        for name in ("store.db", "store.db-wal", "store.db-shm", "store.lock", "store.reserve"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
        assert (tmp_path / "store.reserve").stat().st_blocks * 512 >= 64 << 10
    assert not (tmp_path / "store.db-wal").exists()


async def test_vacuum_releases_many_free_pages_in_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []
    give_back = SqliteBackend._vacuum

    def record_page_count(backend: SqliteBackend, all_of_it: bool) -> bool:
        pages.append(backend._db.execute("PRAGMA page_count").fetchone()[0])
        return give_back(backend, all_of_it)

    monkeypatch.setattr(SqliteBackend, "_vacuum", record_page_count)
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        made = await etcd.create(b"k", bytes(1_000_000))
        for _ in range(3):
            made = await etcd.update(b"k", bytes(1_000_000), made.revision)
        removed = await etcd.delete(b"k", made.revision)
        await etcd.compact(removed.revision)
        async with asyncio.timeout(10):
            while store._sweeping:  # noqa: ASYNC110 - a thread ends it
                await asyncio.sleep(0.001)
        await etcd.defragment()
    steps = [before - after for before, after in pairwise(pages) if before != after]
    assert len(steps) > 5
    assert min(steps[:-1]) >= VACUUMED, steps


async def test_stored_values_are_read_after_a_restart(tmp_path: Path) -> None:
    await fill(tmp_path / "store.db")
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        assert await etcd.head_revision() == 4
        found = await etcd.get(b"a")
        assert found == (b"a", b"2", 3, 2, 2)
        before = await etcd.get(b"a", revision=2)
        assert before == (b"a", b"1", 2, 2, 1)
        await etcd.compact(4)
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        with pytest.raises(errors.Compacted):
            await etcd.get(b"a", revision=3)
        with pytest.raises(errors.Compacted):
            await etcd.compact(4)
        assert await etcd.head_revision() == 4


@pytest.mark.parametrize(
    ("written", "read"), [("'{\"a'", b'{"a'), ("12", b"12"), ("NULL", b""), ("x'00ff'", b"\x00\xff")]
)
async def test_values_of_any_sqlite_type_are_read_as_bytes(tmp_path: Path, written: str, read: bytes) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    run_sql(path, f"UPDATE kv SET value = {written} WHERE key = CAST('a' AS BLOB)")
    async with opened(path) as store, client_of(store) as etcd:
        assert [kv.value for kv in (await etcd.range(b"a", b"b")).kvs] == [read]
        seen: asyncio.Queue[Batch] = asyncio.Queue()
        etcd.watch(b"a", b"b", 2, on_batch=seen.put_nowait, on_end=lambda error: None)
        async with asyncio.timeout(10):
            assert [event.kv.value for event in (await seen.get()).events] == [read, read]


async def test_head_revision_survives_restart_after_last_deletion(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        made = await etcd.create(b"a", b"1")
        gone = await etcd.delete(b"a", made.revision)
        await etcd.create(b"b", b"1")
        await etcd.delete(b"b", gone.revision + 1)
        await etcd.compact(await etcd.head_revision())
        while store._sweeping:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        assert await etcd.head_revision() == 5
        assert (await etcd.create(b"a", b"1")).revision == 6


async def test_interrupted_compaction_sweep_is_completed_at_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    run_sql(path, "UPDATE meta SET value = 4 WHERE name = 'compacted'")
    async with opened(path) as store:
        while store._sweeping or store._writing:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    db = sqlite3.connect(path)
    assert [row[0] >> 20 for row in db.execute("SELECT id FROM kv")] == [3, 4]
    db.close()


async def test_second_server_on_one_file_raises_store_in_use(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path):
        second = Store(SqliteBackend(path))
        with pytest.raises(StoreInUse, match=f"{path} is in use by process {os.getpid()}: end this process"):
            await second.open()
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        assert reader.execute("SELECT count(*) FROM kv").fetchone() == (0,)  # as a backup beside a server
        reader.close()
    async with opened(path):
        pass


async def test_simultaneous_starts_give_the_file_to_one_process(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom apiext.embedded.sqlite import VACUUMED, SqliteBackend\n"
        "from apiext.embedded.store import Store\nfrom apiext.embedded.faults import StoreInUse\n"
        "async def main():\n"
        "    store = Store(SqliteBackend(Path(sys.argv[1])))\n"
        "    try:\n        await store.open()\n"
        "    except StoreInUse:\n        print('kept out', flush=True)\n        return\n"
        "    print('has it', flush=True)\n    sys.stdin.read()\n    await store.close()\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store.db")]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
        for _ in range(2)
    ]
    said = [process.stdout.readline().strip() for process in both if process.stdout is not None]
    assert sorted(said) == ["has it", "kept out"]
    for process in both:
        process.communicate("")


def newer(path: Path) -> None:
    run_sql(path, "PRAGMA user_version=2")


def foreign(path: Path) -> None:
    run_sql(path, "PRAGMA application_id=7")


def truncated(path: Path) -> None:
    os.truncate(path, 6000)


def scribbled(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)


def text(path: Path) -> None:
    path.write_text("this is no database\n" * 500)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (newer, "was written by a newer apiext (format 2; this version supports 1): start the newer version"),
    (foreign, "is not a store of apiext: move it, or use another --data-dir"),
    (
        truncated,
        "is damaged (database disk image is malformed): see docs/recipes/repair-a-store.md to save its content",
    ),
    (
        scribbled,
        "is damaged (database disk image is malformed): see docs/recipes/repair-a-store.md to save its content",
    ),
    (text, "is damaged (file is not a database): see docs/recipes/repair-a-store.md to save its content"),
    (directory, "is not a regular file: remove it, or use another --data-dir"),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES, ids=lambda case: getattr(case, "__name__", ""))
async def test_open_reports_why_the_file_is_unusable(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    damage(path)
    assert await open_error(path) == f"{path} {said}"
    assert await open_error(path) == f"{path} {said}"  # the file is neither locked nor changed


@pytest.mark.parametrize("garbage", [b"", b"\x5a" * 5000], ids=["cut", "overwritten"])
async def test_damaged_wal_keeps_whole_transactions_before_the_damage(tmp_path: Path, garbage: bytes) -> None:
    """The log may be truncated anywhere: in its header, in a frame header or in a page."""
    whole = tmp_path / "store.db"
    async with opened(whole) as store, client_of(store) as etcd:
        revisions = [(await etcd.create(b"k%d" % number, b"v" * 300 * number)).revision for number in range(30)]
        base, log = whole.read_bytes(), whole.with_name("store.db-wal").read_bytes().rstrip(b"\0")
    counts = []
    for number, end in enumerate([*range(0, len(log), max(1, len(log) // 37)), len(log)]):
        torn = tmp_path / f"{number}" / "store.db"
        torn.parent.mkdir()
        torn.write_bytes(base)
        torn.with_name("store.db-wal").write_bytes(log[:end] + garbage)
        async with opened(torn) as store, client_of(store) as etcd:
            found = (await etcd.range(b"k", b"l")).kvs
            assert sorted(kv.mod_revision for kv in found) == revisions[: len(found)]
            assert all(kv.value == b"v" * 300 * int(kv.key[1:]) for kv in found)
            following = await etcd.create(b"new", b"")
            assert following.revision == (revisions[len(found) - 1] if found else 1) + 1
            counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[-1] == 30
    assert len(set(counts)) > 10


async def test_recipe_named_in_the_damage_message_exists() -> None:
    assert (Path(__file__).parents[3] / "docs/recipes/repair-a-store.md").exists()


async def test_a_file_system_without_shared_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    connect = sqlite3.connect
    # as network file systems: without shared memory there is no write-ahead log
    monkeypatch.setattr(sqlite3, "connect", lambda file, **how: connect(f"file:{file}?vfs=unix-none", uri=True, **how))
    said = await open_error(path)
    assert said.startswith(f"{path} cannot ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await fill(path)
    os.chown(path, 12345, 12345)
    told = "belongs to user 12345: change the owner with chown, or use another --data-dir"
    assert await open_error(path) == f"{path} {told}"


async def test_missing_directory_is_reported_with_path_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "store.db"
    said = await open_error(path)
    text = "give this user write access to the directory, or use another --data-dir"
    assert said == f"{path} cannot be written (No such file or directory): {text}"


async def test_full_disk_refuses_writes_until_space_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SQLite reports a full disk.

    Releasing the reserve does not help while the page limit is set.
    """
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        assert isinstance(store.backend, SqliteBackend)
        db = store.backend._db
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count={pages + 60}")
        made = await etcd.create(b"a", b"1")
        revisions = [made.revision]
        with pytest.raises(errors.OutOfSpace):
            await _until_refused(etcd.update, revisions)
        found = await etcd.get(b"a")
        assert found is not None
        assert found.mod_revision == revisions[-1]
        assert store.backend.short
        with pytest.raises(errors.OutOfSpace):
            await etcd.update(b"a", b"2", revisions[-1])
        assert "the disk of the store is full" in caplog.text
        assert "quota" not in caplog.text
        db.execute("PRAGMA max_page_count=1000000")
        async with asyncio.timeout(10):
            while store.backend.short or store._refused:
                store._relieving = False  # otherwise it tries again after RELIEF seconds
                store._relieve()
                await asyncio.sleep(0.01)
        assert (await etcd.update(b"a", b"2", revisions[-1])).ok
        assert (tmp_path / "store.reserve").exists()


async def _until_refused(update: Callable[..., object], revisions: list[int]) -> None:
    for _ in range(100):
        result = await update(b"a", bytes(50_000), revisions[-1])  # type: ignore[misc]
        revisions.append(result.revision)


async def test_unexpected_write_error_stops_the_store(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        assert isinstance(store.backend, SqliteBackend)
        store.backend._db.execute("DROP TABLE kv")
        with pytest.raises(EtcdError, match="no such table"):
            await Connection(store).unary(messages.TXN, requests.put(b"a", b"1", 0, (), 0), 1)
        assert "no such table" in await store.failed
