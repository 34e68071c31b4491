"""The private etcd child: started on unix sockets, watched over, stopped in order and never killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from apiext.etcd import datadir, messages
from apiext.etcd.binaries import Binary, find_binary
from apiext.etcd.channel import jittered
from apiext.etcd.datadir import DataDir, DirectoryInUse
from apiext.etcd.dial import dial
from apiext.etcd.errors import EtcdError
from apiext.etcd.scope import Scope, log
from apiext.etcd.transport import TLS, parse_endpoint
from apiext.etcd.versions import may_renumber, progress_flag

HEARTBEAT, ELECTION = 20, 100  # milliseconds: one member has nobody to lose contact with, and a start is an election
SNAPSHOT_COUNT = 10_000  # raft entries kept in memory
QUOTA = 8 << 30  # bytes
LARGEST = (3 << 19) + 4096  # bytes of a request: etcd's default, and room for what our transactions compare besides
PROGRESS = "5s"  # how often an idle watch hears of progress
READY_TIMEOUT = 60.0  # seconds until the child answers: a large store takes its time
LOCK_PATIENCE = 10.0  # seconds for another server to leave the directory
LEAVE_PATIENCE = 5.0  # seconds for the child of a killed server to stop by itself
STOP_PATIENCE = 20.0  # seconds for the child to stop
FIRST_PAUSE, LAST_PAUSE = 0.1, 10.0  # seconds before a child that died is started again
GOOD_LIFE = 30.0  # seconds of life after which a death is a new story
LOG_LIMIT = 16 << 20  # bytes of the log above which a start begins a new one
POLL = 0.005  # seconds between looks at something that is about to happen

# Run by a new interpreter before the exec, not by preexec_fn after a fork: a fork of a process with threads may crash.
# 1 is PR_SET_PDEATHSIG; the parent may have died in between; what Python ignores, etcd shall not.
DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerError(Exception):
    """The child cannot run; the text says why."""


def flags(binary: Binary) -> list[str]:
    """Return the child's arguments (storage.md 1.4), relative to its working directory ``run``."""
    client, peer = f"unix://{datadir.SOCKET}", f"unix://{datadir.PEER_SOCKET}"
    progress = progress_flag(binary.version)
    return [
        "--name=apiext",
        "--data-dir=../data",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=apiext={peer}",
        f"--heartbeat-interval={HEARTBEAT}",
        f"--election-timeout={ELECTION}",
        f"--quota-backend-bytes={QUOTA}",
        f"--max-request-bytes={LARGEST}",
        "--auto-compaction-retention=0",  # the store compacts: it knows which revisions it still needs
        "--logger=zap",
        "--log-level=warn",
        "--log-outputs=stderr",
        # from 3.6 on it is the default, and the flag is on its way out
        *([f"--snapshot-count={SNAPSHOT_COUNT}"] if binary.version < (3, 6, 0) else []),
        *([f"{progress}={PROGRESS}"] if progress else []),
    ]


def command(binary: Binary) -> list[str]:
    """Return what is run: the child, where the system can by way of what makes our death its SIGTERM."""
    child = [str(binary.path), *flags(binary)]
    if sys.platform != "linux" or not sys.executable:
        return child
    return [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *child]


class EtcdServer:
    """A running child, or one that was found running; restarts it when it dies."""

    def __init__(self, directory: DataDir, binary: Binary) -> None:
        self.endpoints = [directory.endpoint]
        self.version = binary.text
        self.development_only = not binary.durable
        self.warnings: list[str] = []
        self._tell: Callable[[str], None] = log.warning
        self.pid = 0
        self.adopted = False
        self.on_again: Callable[[], None] = lambda: None  # called, and must not raise, when another child runs
        self._directory = directory
        self._binary = binary
        self._child: subprocess.Popen[bytes] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._scope = Scope()
        self._stopping = False

    @classmethod
    async def start(
        cls,
        data_dir: Path,
        *,
        binary: str | None = None,
        warn: Callable[[str], None] = log.warning,
        give_up: Callable[[], bool] = lambda: False,
    ) -> "EtcdServer":
        """Start a child on a directory, or adopt the one that runs there; ServerError, NoBinary, DirectoryInUse.

        ``warn`` is told what the data may suffer from; ``give_up`` tells that a directory in use is not waited for.
        """
        directory = DataDir(data_dir)
        server = cls(directory, find_binary(binary))
        server._tell = warn
        directory.make()
        try:
            directory.lock()
        except DirectoryInUse as used:
            warn(f"{used}; waiting {LOCK_PATIENCE:g}s for it")
            await _until(lambda: _locked(directory), LOCK_PATIENCE, give_up)
        try:
            await server._begin()
        except BaseException:
            await server._terminate()
            directory.unlock()
            raise
        await server._scope.open()
        server._scope.spawn(server._supervise())
        return server

    async def stop(self) -> None:
        """Stop the child with SIGTERM and wait; a child that does not stop is left alone and reported."""
        if self._stopping:
            return
        self._stopping = True
        await self._scope.close()
        if await self._terminate():
            self._directory.forget_child()
            if self._child is None or self._child.poll() in {0, -signal.SIGTERM}:
                self._directory.mark_clean()
        else:
            log.error("etcd (process %d) does not stop; it is left running", self.pid)
        self._directory.unlock()

    # -- starting ------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        pid = self._directory.running_child()
        if pid is not None and await self._adopt(pid):
            return
        if self.development_only:
            self._warn(f"embedded etcd {self.version}: development only, a crash can lose acknowledged writes")
        clean = self._directory.take_clean_mark()
        if self._directory.has_data() and not clean and may_renumber(self._binary.version):
            self._warn(f"etcd {self.version} was not stopped in order: acknowledged writes may be lost or renumbered")
        await self._spawn()

    async def _adopt(self, pid: int) -> bool:
        """Deal with the child of a server that was killed; False when it is gone."""
        asked_to_stop = sys.platform == "linux"  # by its parent's death
        if asked_to_stop and await _until(lambda: not datadir.is_running(pid), LEAVE_PATIENCE):
            return False
        if await self._answers():
            self.pid, self.adopted = pid, True
            self._warn(f"an etcd of a killed server is still running (process {pid}): it is used further")
            self._gone = _exit_of(pid, None)
            return True
        os.kill(pid, signal.SIGTERM)
        if not await _until(lambda: not datadir.is_running(pid), STOP_PATIENCE):
            raise ServerError(f"process {pid} is an etcd on {self._directory.data} that neither answers nor stops")
        return False

    async def _spawn(self) -> None:
        directory = self._directory
        directory.clear_sockets()
        mode = "ab" if directory.log.exists() and directory.log.stat().st_size < LOG_LIMIT else "wb"
        # its flags are ours to choose, and that it is ready is not what our init waits for
        told = ("ETCD_", "NOTIFY_SOCKET")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(told)}
        with directory.open_log(mode) as output:
            child = subprocess.Popen(  # noqa: ASYNC220 - a few milliseconds; the loop's way needs its watcher
                command(self._binary),
                cwd=directory.run,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us: we drain first
            )
        self._child, self.pid, self.adopted = child, child.pid, False
        self._gone = _exit_of(child.pid, child)
        try:
            directory.remember_child(child.pid)
        except OSError as error:  # on a full disk; it is our child all the same
            log.error("nobody will find etcd (process %d) if we are killed: %s", child.pid, error)
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT
        while not await self._answers():
            if child.poll() is not None:
                raise ServerError(f"etcd ended with code {child.returncode}: {directory.last_words()}")
            if asyncio.get_running_loop().time() > deadline:
                raise ServerError(f"etcd does not answer within {READY_TIMEOUT:g}s: {directory.last_words()}")
            await asyncio.sleep(POLL)

    async def _answers(self) -> bool:
        """Tell whether the child answers a linearizable read: an open socket alone would be too early."""
        if not (self._directory.run / datadir.SOCKET).exists():
            return False
        try:
            connection = await dial(parse_endpoint(self._directory.endpoint), TLS(), self._scope.spawn)
        except EtcdError:
            return False
        probe = messages.RangeRequest(key=b"\x00", count_only=True).SerializeToString()
        try:
            await connection.unary(messages.RANGE, probe, 3.0)
        except EtcdError:
            return False
        finally:
            connection.drain()
            await connection.gone
        return True

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
            self._tell(text)

    # -- watching over it ----------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        pause, since = FIRST_PAUSE, loop.time()
        while True:
            if self._gone is not None:
                await asyncio.wait([self._gone])  # not awaited itself: our own end must not cancel it
            if loop.time() - since > GOOD_LIFE:
                pause = FIRST_PAUSE
            how = self._child.returncode if self._child is not None else "unknown"
            log.error("etcd (process %d) died with code %s; it is started again", self.pid, how)
            if may_renumber(self._binary.version):
                self._warn(f"etcd {self.version} died: acknowledged writes may be lost or renumbered")
            await asyncio.sleep(jittered(pause))
            pause = min(pause * 2, LAST_PAUSE)
            since = loop.time()
            try:
                await self._spawn()
            except (ServerError, OSError) as error:
                log.error("etcd does not start again: %s", error)
            else:
                self.on_again()

    async def _terminate(self) -> bool:
        """End the child in order; tell whether it is gone."""
        if not self.pid or self._gone is None or self._gone.done():
            return True
        try:
            os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            return True
        await asyncio.wait([self._gone], timeout=STOP_PATIENCE)
        return self._gone.done()


def _locked(directory: DataDir) -> bool:
    directory.lock()
    return True


async def _until(done: Callable[[], bool], patience: float, give_up: Callable[[], bool] = lambda: False) -> bool:
    """Wait until something is so; after ``patience`` seconds return False, or raise what still stands against it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        try:
            if done():
                return True
        except DirectoryInUse:
            if loop.time() > deadline or give_up():
                raise
        if loop.time() > deadline:
            return False
        await asyncio.sleep(POLL * 4)


def _exit_of(pid: int, child: subprocess.Popen[bytes] | None) -> asyncio.Future[None]:
    """Return a future that is done when a process, our child or not, has ended."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()

    def ended() -> bool:
        return child.poll() is not None if child is not None else not datadir.is_running(pid)

    def look(descriptor: int | None) -> None:
        if gone.done():
            return
        if ended():
            if descriptor is not None:
                loop.remove_reader(descriptor)
                os.close(descriptor)
            gone.set_result(None)
        elif descriptor is None:
            loop.call_later(0.1, look, None)

    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        loop.call_soon(look, None)
    else:
        loop.add_reader(descriptor, look, descriptor)
    return gone
