"""The back end of the embedded store in a SQLite file.

One thread writes the file, another thread reads it. SQLite 3.7.0 to 3.51.2 can corrupt a write-ahead log if two
connections write or checkpoint at the same time. So only the connection of the writing thread writes and checkpoints.
"""

import errno
import fcntl
import os
import secrets
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from apiext.embedded import limits
from apiext.embedded.backend import (
    SUBS,
    Batch,
    Commit,
    Found,
    History,
    Identity,
    NoRoom,
    Size,
    StoredContent,
    Values,
    Written,
    row_of,
)
from apiext.embedded.faults import StoreFault, StoreInUse
from apiext.embedded.index import Span
from apiext.embedded.wire import Change, Record
from apiext.embedded.worker import Worker

FORMAT = 1  # the format of the file, in SQLite's user_version
APPLICATION = 0x61706578  # "apex", in SQLite's application_id
INSERTED = 64  # maximum number of changes of one INSERT
SELECTED = 250  # maximum number of rows of one SELECT or DELETE
HISTORY = 200  # number of changes after which a read of changes ends before the next revision
HISTORY_BYTES = 2 << 20  # bytes of values after which a read of changes ends before the next revision
MEASURE_EVERY = 256 << 10  # written bytes (estimated) after which the size of the file is measured again
LOG = 1001 * 4120  # bytes of the write-ahead log between two checkpoints: 1,001 pages with their headers
VACUUMED = 128  # maximum number of pages that one statement releases
FREE_KEPT = 4  # ``shrink`` leaves a quarter of the pages free for new values, unless it must release all free pages
RECIPE = "docs/recipes/repair-a-store.md"

_SCHEMA = (
    "CREATE TABLE kv (id INTEGER PRIMARY KEY, key BLOB NOT NULL, created INTEGER NOT NULL, version INTEGER NOT NULL,"
    " lease INTEGER NOT NULL, value BLOB)",
    "CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl INTEGER NOT NULL)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
"""The tables. ``id`` of kv is the row number, as in ``row_of``. ``version`` 0 is a deletion."""

_VALUE = "CASE WHEN version THEN ifnull(CAST(value AS BLOB), x'') END"
"""The value of a row as bytes, NULL for a deletion. The sqlite3 shell may have stored text, an integer or NULL."""

_DAMAGED = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))


class SqliteBackend:
    """A store in a file.

    ``load`` locks the file. ``close`` or the end of the process unlocks it. The reserve file next to it only occupies
    disk space. If the disk is full, the back end deletes the reserve file, so that deletions and compactions still fit.
    """

    def __init__(self, path: Path, reserve: int = limits.RESERVE) -> None:
        self.path = path.absolute()
        self._reserve_file, self._lock_file = self.path.with_suffix(".reserve"), lock_of(path)
        self._reserve = reserve
        self._lock: int | None = None
        self._write_connection: sqlite3.Connection | None = None
        self._read_connection: sqlite3.Connection | None = None
        self._writer, self._reader = Worker("store writer"), Worker("store reader")
        self._size = Size(0, 0)
        self._unmeasured = 0  # estimated bytes of the changes since the last measurement
        self._short = False

    # -- opening -------------------------------------------------------------------------------------------------

    def load(self) -> StoredContent:
        """Lock the file, create or check its tables, and return the stored content.

        Raise StoreFault, or OSError if the disk is full while the files are created.
        """
        try:
            self._take_file()
            self._write_connection = writer = self._connect()
            self._prepare(writer)
            kept = self._read_all(writer)
            self._read_connection = reader = self._connect()
            reader.execute("PRAGMA query_only=ON")
            reader.execute("PRAGMA wal_autocheckpoint=0")
            self._measure()
        except sqlite3.Error as error:
            self.close()
            raise self._explained(error) from error
        except OSError as error:
            self.close()
            if error.errno == errno.ENOSPC:
                raise
            text = "give this user write access to the directory, or use another --data-dir"
            raise StoreFault(f"{self.path} cannot be written ({error.strerror or error}): {text}") from error
        except BaseException:
            self.close()
            raise
        self._fill_reserve()
        self._writer.do(self._extend_log, lambda _: None)
        return kept

    def _extend_log(self) -> None:
        """Fill the write-ahead log with zeros up to its usual size.

        SQLite reads zeros as the end of the log. The sync of a growing file also writes its size and its list of
        blocks, which takes at least twice as long. So the log gets its size once, at the start. It shrinks only when
        the store closes, in a defragmentation, or on a full disk. The writing thread calls this method, so SQLite does
        not write at the same time.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        with suppress(OSError):
            descriptor = os.open(log, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                used = os.fstat(descriptor).st_size
                try:
                    os.pwrite(descriptor, bytes(max(0, LOG - used)), used)
                    os.fsync(descriptor)
                except OSError:  # the disk is full, and objects need the space more than the log
                    os.ftruncate(descriptor, used)
            finally:
                os.close(descriptor)

    def _take_file(self) -> None:
        for path in (self.path, self._lock_file):
            with suppress(FileNotFoundError):
                found = path.lstat()
                if not stat.S_ISREG(found.st_mode):
                    raise StoreFault(f"{path} is not a regular file: remove it, or use another --data-dir")
                if found.st_uid != os.geteuid():
                    raise StoreFault(
                        f"{path} belongs to user {found.st_uid}: change the owner with chown, or use another --data-dir"
                    )
        self._lock = _locked(self._lock_file, self.path)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        self.path.chmod(0o600)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=10.0, isolation_level=None, check_same_thread=False)

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Configure SQLite, and create the tables of a new file."""
        made = _one(db, "PRAGMA user_version")
        new = not made and not _one(db, "SELECT count(*) FROM sqlite_master")
        if new:
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # must precede the first table
        elif _one(db, "PRAGMA application_id") != APPLICATION:
            raise StoreFault(f"{self.path} is not a store of apiext: move it, or use another --data-dir")
        elif made > FORMAT:
            raise StoreFault(
                f"{self.path} was written by a newer apiext (format {made}; this version supports {FORMAT}): "
                "start the newer version"
            )
        mode = _one(db, "PRAGMA journal_mode=WAL")
        if mode != "wal":
            raise StoreFault(
                f"{self.path} cannot have a write-ahead log on its file system (journal mode {mode}), such as a "
                "network file system or a shared folder: use a --data-dir on a local disk"
            )
        db.execute("PRAGMA synchronous=FULL")
        if sys.platform == "darwin":
            db.execute("PRAGMA fullfsync=ON")
            db.execute("PRAGMA checkpoint_fullfsync=ON")
        if new:
            with _transaction(db):
                for statement in _SCHEMA:
                    db.execute(statement)
                ids = [("cluster", secrets.randbits(62) | 1), ("member", secrets.randbits(62) | 1), ("compacted", -1)]
                db.executemany("INSERT INTO meta VALUES (?, ?)", ids)
                db.execute(f"PRAGMA application_id={APPLICATION}")
                db.execute(f"PRAGMA user_version={FORMAT}")

    def _read_all(self, db: sqlite3.Connection) -> StoredContent:
        meta = dict(db.execute("SELECT name, value FROM meta"))
        changes = [
            (key, Record(row // SUBS, created, version, lease if version else row % SUBS))
            for row, key, created, version, lease in db.execute(
                "SELECT id, key, created, version, lease FROM kv ORDER BY id"
            )
        ]
        leases = db.execute("SELECT id, ttl FROM lease").fetchall()
        return StoredContent(Identity(meta["cluster"], meta["member"]), meta["compacted"], changes, leases)

    def _explained(self, error: sqlite3.Error) -> StoreFault:
        code = _code(error)
        if code in _DAMAGED:
            return StoreFault(f"{self.path} is damaged ({error}): see {RECIPE} to save its content")
        if code == sqlite3.SQLITE_FULL:
            return StoreFault(f"{self.path} does not fit on its disk: free disk space, then start again")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreFault(f"{self.path} is locked by another program: end this program")
        text = "give this user write access to the directory, or use another --data-dir"
        return StoreFault(f"{self.path} cannot be opened ({error}): {text}")

    def close(self) -> None:
        """End the threads and close the file. SQLite then copies the write-ahead log into the file."""
        self._reader.close()
        self._writer.close()
        # the writing connection is closed last, since SQLite checkpoints when the last connection is closed
        for connection in (self._read_connection, self._write_connection):
            if connection is not None:
                with suppress(sqlite3.Error):  # if the disk is full, the log stays, and the next start reads it
                    connection.close()
        self._read_connection = self._write_connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self, batch: Batch, written: Written) -> None:
        """Store a batch in the writing thread; see Backend."""
        self._writer.do(lambda: self._write(batch), written)

    def _write(self, batch: Batch) -> Commit:
        began = perf_counter()
        was_full = False
        try:
            self._commit(batch)
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_FULL:
                raise
            was_full = self._release_reserve()
            try:
                self._commit(batch)
            except sqlite3.OperationalError as again:
                if _code(again) != sqlite3.SQLITE_FULL:
                    raise
                raise NoRoom from again
        took = perf_counter() - began
        self._unmeasured += batch.size
        if self._unmeasured > MEASURE_EVERY or batch.deleted_rows:
            self._measure()
        return Commit(took, was_full)

    def _commit(self, batch: Batch) -> None:
        db = self._db
        changes = batch.changes
        if batch.plain and len(changes) <= INSERTED:
            # without BEGIN and COMMIT, this is one call: each call releases the interpreter lock and waits for it again
            _insert(db, changes)
            return
        with _transaction(db):
            for first in range(0, len(changes), INSERTED):
                _insert(db, changes[first : first + INSERTED])
            db.executemany("INSERT INTO lease VALUES (?, ?)", batch.granted)
            db.executemany("DELETE FROM lease WHERE id = ?", [(lease,) for lease in batch.revoked])
            if batch.compacted:
                db.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (batch.compacted,))
            for rows in _parts(batch.deleted_rows):
                db.execute(f"DELETE FROM kv WHERE id IN ({_marks(len(rows))})", rows)

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._write_connection is not None
        return self._write_connection

    # -- reading -------------------------------------------------------------------------------------------------

    def values(self, rows: Sequence[int], found: Values) -> None:
        """Read values in the reading thread."""
        self._reader.do(lambda: self._values(rows), found)

    def _values(self, rows: Sequence[int]) -> dict[int, bytes]:
        assert self._read_connection is not None
        found: dict[int, bytes] = {}
        for some in _parts(rows):
            found.update(
                self._read_connection.execute(f"SELECT id, {_VALUE} FROM kv WHERE id IN ({_marks(len(some))})", some)
            )
        return found

    def changes(self, span: Span, first: int, last: int, found: Found) -> None:
        """Read changes in the reading thread."""
        self._reader.do(lambda: self._changes(span, first, last), found)

    def _changes(self, span: Span, first: int, last: int) -> History:
        assert self._read_connection is not None
        (start, end), wanted = span, "id >= ? AND id < ?"
        bounds: list[int | bytes] = [first * SUBS, (last + 1) * SUBS, start]
        wanted += " AND key >= ?" if end else " AND key = ?"
        if end and end != b"\0":
            wanted += " AND key < ?"
            bounds.append(end)
        changes: list[Change] = []
        read = 0
        cursor = self._read_connection.execute(
            f"SELECT id, key, created, version, lease, {_VALUE} FROM kv WHERE {wanted} ORDER BY id", bounds
        )
        try:
            for row, key, created, version, lease, value in cursor:
                revision = row // SUBS
                if changes and (len(changes) >= HISTORY or read > HISTORY_BYTES):
                    before = changes[-1].record.revision
                    if revision != before:
                        return History(changes, before)
                record = Record(revision, created, version, lease if version else row % SUBS)
                changes.append(Change(key, value, record))
                read += len(value or b"")
        finally:
            cursor.close()
        return History(changes, last)

    # -- room ----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> Size:
        """The size of the file when it was last measured, plus the estimate of later changes."""
        return Size(self._size.total + self._unmeasured, self._size.in_use + self._unmeasured)

    @property
    def short(self) -> bool:
        """True while the reserve file is missing, since the disk is or was full."""
        return self._short

    def _measure(self) -> None:
        pages, free = _one(self._db, "PRAGMA page_count"), _one(self._db, "PRAGMA freelist_count")
        page = _one(self._db, "PRAGMA page_size")
        self._size, self._unmeasured = Size(pages * page, (pages - free) * page), 0

    def shrink(self, all_of_it: bool, done: Callable[[], None]) -> None:
        """Release free pages, some at a time, so that writes need not wait; then call ``done``.

        At the end, create the reserve file again if it is missing.
        """

        def part() -> bool:
            try:
                return self._vacuum(all_of_it)
            except sqlite3.Error:  # the disk is full; the next compaction tries again
                return False

        def following(more: bool) -> None:
            if more is True:
                self._writer.do(part, following)
            else:
                done()

        self._writer.do(part, following)

    def _vacuum(self, all_of_it: bool) -> bool:
        """Release some free pages. Return whether there are more pages to release."""
        pages, free = _one(self._db, "PRAGMA page_count"), _one(self._db, "PRAGMA freelist_count")
        spare = free if all_of_it else free - max(pages // FREE_KEPT, 2 * VACUUMED)
        if spare > 0:
            # ``execute`` of Python 3.11 runs only the first step of this statement, and a step releases only one page
            self._db.executescript(f"PRAGMA incremental_vacuum({min(spare, VACUUMED)})")
        if spare > VACUUMED:
            return True
        if all_of_it or self._short:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._measure()
        if self._short:
            self._fill_reserve()
        return False

    def _fill_reserve(self) -> None:
        """Allocate the reserve file. If it does not fit on the disk, set ``short``."""
        self._short = True
        if not self._reserve:
            self._short = False
            return
        try:
            descriptor = os.open(self._reserve_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                _allocate(descriptor, self._reserve)
            finally:
                os.close(descriptor)
        except OSError:
            self._release_reserve()
        else:
            self._short = False

    def _release_reserve(self) -> bool:
        """Delete the reserve file, which frees its disk space, and set ``short``.

        Return True if the file existed, was not empty, and could be deleted.
        """
        self._short = True
        try:
            there = self._reserve_file.stat().st_size > 0
            self._reserve_file.unlink()
        except OSError:
            return False
        return there


def lock_of(path: Path) -> Path:
    """Return the path of the file that a server locks while it has the store open."""
    return path.with_suffix(".lock")


def _locked(path: Path, store: Path) -> int:
    """Lock the file ``path``, and return its descriptor.

    Raise StoreInUse if another process has locked it.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise StoreInUse(
            f"{store} is in use by process {holder}: end this process, or use another --data-dir"
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(1 << 20)  # macOS has no posix_fallocate
    for place in range(0, size, len(block)):
        os.pwrite(descriptor, block, place)


class _transaction:  # noqa: N801 - used like a function
    """A context manager that commits a transaction at the end of its block.

    After an exception, it rolls the transaction back.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
                return
            except sqlite3.Error:
                self._roll_back()
                raise
        self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:  # after some errors, SQLite has rolled back already
            self._db.execute("ROLLBACK")


def _insert(db: sqlite3.Connection, changes: Sequence[Change]) -> None:
    values: list[Any] = []
    for change in changes:
        record = change.record
        values += (row_of(record), change.key, record.created, record.version, record.lease, change.value)
    if changes:
        db.execute(_insertion(len(changes)), values)


@lru_cache(INSERTED)
def _insertion(count: int) -> str:
    return "INSERT INTO kv (id, key, created, version, lease, value) VALUES " + ",".join(["(?,?,?,?,?,?)"] * count)


def _marks(count: int) -> str:
    return ",".join("?" * count)


def _parts(rows: Iterable[int]) -> Iterable[list[int]]:
    left = iter(rows)
    while part := list(islice(left, SELECTED)):
        yield part


def _one(db: sqlite3.Connection, statement: str) -> Any:
    return db.execute(statement).fetchone()[0]


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code of an error of SQLite, 0 if unknown."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
