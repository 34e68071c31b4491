"""``apiext serve --workers N``: a process that starts N servers on one port.

The process, the supervisor, restarts workers (servers) that have ended (decisions/0024). The supervisor reserves the
port and writes the ready file, but handles no requests.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from apiext import cli, launch, limits
from apiext.config import Config, ConfigError, Listening, Worker
from apiext.etcd.channel import jittered
from apiext.system.sockets import bind_all, is_unspecified
from apiext.system.worker_progress import WorkerProgress

# Seconds before a failed worker is restarted for the first time.
WORKER_FIRST_PAUSE = 0.1
# Seconds that a worker must run, so that the pause before its next restart is short again.
WORKER_STABLE = 30.0

log = logging.getLogger(__name__)

EXITS: launch.Exits = (
    (launch.StoppedError, cli.EXIT_FAILURE),
    (launch.PortInUseError, cli.EXIT_PORT),
    (ConfigError, cli.EXIT_USAGE),
    (OSError, cli.EXIT_FAILURE),
)
_POLL_EVERY = 0.005  # seconds between checks for the end of a worker, after its channel was closed


def run(config: Config, warn: cli.Warn) -> int:
    """Serve until a signal, or until a worker ends before all serve; return the exit code."""
    launch.open_log(config)
    with asyncio.Runner() as runner:
        try:
            code = runner.run(Supervisor(config, warn).serve())
        except Exception as error:  # outermost: every failure becomes one line and an exit code
            return launch.explain(error, EXITS)
        return launch.ended(config, code)


class Supervisor:
    """The workers of a server, from start to end."""

    def __init__(self, config: Config, warn: cli.Warn) -> None:
        self._config = config
        self._warn = warn
        self._stop = asyncio.Event()
        self._slots: list[Slot] = []
        self._progress = WorkerProgress.make(config.workers)
        self._served = False  # true once a worker has served
        self._serving = False  # true once all workers serve
        self._code = 0  # exit code of the server if a worker ended before all workers served
        self._late_code = 0  # exit code of a worker whose start failed while the server was stopping

    async def serve(self) -> int:
        """Start all workers, wait for a signal, stop them; return the exit code.

        Raises StoppedError if the signal arrives before a worker serves, unless a worker ends with an exit code
        above 1: then this code is returned.
        """
        config = self._config
        launch.prepare(config)
        for number in launch.ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        async with contextlib.AsyncExitStack() as stack:
            port = await self._port(stack)
            # ``launch.prepare`` has called this before. Now this process has the port, so no other server uses it.
            launch.remove_earlier_ready_file(config)
            if not self._stop.is_set():
                await self._work(port)
        if self._code or self._served:
            return self._code
        if self._late_code:
            return self._late_code
        raise launch.StoppedError

    async def _work(self, port: int) -> None:
        """Run the workers from start to end."""
        config, progress = self._config, self._progress
        for number in range(1, config.workers + 1):
            worker = Worker(number, config.workers, progress.descriptor)
            self._slots.append(Slot(share(config, port, worker), progress, self._stop, self._ended))
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(slot.run_workers()) for slot in self._slots]
            try:
                await self._start()
                await self._stop.wait()
            finally:
                self._end()
                await self._finish(workers)

    async def _port(self, stack: contextlib.AsyncExitStack) -> int:
        """Reserve the port; retry for limits.WORKER_LEAVE seconds.

        Workers of a killed supervisor may use the port until they have ended.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.WORKER_LEAVE
        while True:
            try:
                return stack.enter_context(reserved(self._config.listening))
            except launch.PortInUseError:
                if loop.time() > until or self._stop.is_set():
                    raise
            await asyncio.sleep(limits.WORKER_LEAVE / 100)

    async def _start(self) -> None:
        """Start the first worker, then all other workers, and announce the server.

        The announcement follows once all workers serve. If the server stops meanwhile, return without the
        announcement.
        """
        first, *others = self._slots
        first.may_start.set()  # the first worker creates certificates, tokens, namespaces and default roles
        facts = await first.ready
        self._served |= bool(facts)
        for slot in others:
            slot.may_start.set()
        for slot in others:
            await slot.ready
        if self._stop.is_set():
            return
        self._serving = True
        self._progress.set_all_serve()  # from now on, /readyz passes if the worker itself is ready
        url, kubeconfig = facts
        launch.announce(self._config, launch.Ready(url, kubeconfig))

    async def _finish(self, workers: Sequence["asyncio.Task[None]"]) -> None:
        """End all workers with SIGTERM; kill workers that do not end in time."""
        launch.retract(self._config)
        for slot in self._slots:
            slot.end(signal.SIGTERM)
        _, late = await asyncio.wait(workers, timeout=self._config.listening.shutdown_delay + limits.WORKER_STOP)
        if late:
            log.error("%d workers did not end in time, and are killed", len(late))
        for slot in self._slots:
            slot.end(signal.SIGKILL)

    def _on_signal(self) -> None:
        if self._stop.is_set():  # the second signal: workers are killed with their parent
            os._exit(cli.EXIT_FAILURE)
        self._end()

    def _end(self) -> None:
        self._stop.set()
        for slot in self._slots:
            slot.release()

    def _ended(self, code: int) -> None:
        """Handle the end of a worker; do nothing once all workers serve.

        If the server is not stopping, stop it with the worker's exit code, or with 1 if the worker was killed or ended
        with 0. If the server is stopping, a worker that ends with 0 has served. Exit code 1 is then ignored, since a
        worker that had no time to start also ends with 1.
        """
        if self._serving:
            return
        self._served |= self._stop.is_set() and code == 0
        if not self._stop.is_set():
            self._code = code if code > 0 else cli.EXIT_FAILURE
            self._end()
        elif code > cli.EXIT_FAILURE:  # exit code 1 is also that of a worker that was not started yet
            self._late_code = code


class Slot:
    """A worker process and its replacements.

    The result of ``ready`` is [URL, kubeconfig] of the first process that serves, or [] if the server stops earlier.
    """

    def __init__(
        self, config: Config, progress: WorkerProgress, stop: asyncio.Event, ended: Callable[[int], None]
    ) -> None:
        assert config.worker is not None
        self._progress = progress
        self.may_start = asyncio.Event()
        self.ready: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._number, self._of = config.worker.number, config.worker.of
        self._config = pickle.dumps(config)
        self._stop = stop
        self._ended = ended
        self._process: subprocess.Popen[bytes] | None = None

    async def run_workers(self) -> None:
        """Run a worker, and restart it whenever it ends, until the server stops."""
        loop = asyncio.get_running_loop()
        pause = WORKER_FIRST_PAUSE
        while not self._stop.is_set():
            since = loop.time()
            code = await self._run()
            self._progress.leave(self._number)
            self._ended(code)
            if self._stop.is_set():
                return
            if loop.time() - since > WORKER_STABLE:
                pause = WORKER_FIRST_PAUSE
            log.error("worker %d ended with code %d; it is restarted", self._number, code)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), jittered(pause))
            pause = min(2 * pause, limits.WORKER_LAST_PAUSE)

    def release(self) -> None:
        """End the waits for ``may_start`` and ``ready``, since the server stops."""
        self.may_start.set()
        if not self.ready.done():
            self.ready.set_result([])

    def end(self, how: signal.Signals) -> None:
        """Send a signal to the worker, if it runs."""
        if self._process is not None:
            self._process.send_signal(how)

    async def _run(self) -> int:
        """Run one worker to its end; return its exit code. The channel closes when the worker ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = self._process = self._spawn(theirs)
            except OSError as error:
                ours.close()
                log.error("worker %d cannot be started: %s", self._number, error)  # noqa: TRY400 - the message has the error
                return cli.EXIT_FAILURE
        reader, writer = await asyncio.open_connection(sock=ours)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch(process))
            with contextlib.suppress(OSError):
                await self.may_start.wait()
                if not self._stop.is_set():
                    writer.write(self._config)
                writer.write_eof()
                facts = await reader.readline()
                if facts and not self.ready.done():
                    self.ready.set_result(json.loads(facts))
                await reader.read()
            watch.cancel()
        writer.close()
        while (code := process.poll()) is None:  # noqa: ASYNC110 - the process ends soon
            await asyncio.sleep(_POLL_EVERY)
        return code

    async def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill the worker if it hangs.

        The clients of a worker that hangs would wait without end, and it would get new connections. Missed heartbeats
        are counted, not seconds, so that a supervisor that was itself suspended kills no worker.
        """
        before, missed = 0, 0
        while missed < limits.WORKER_BEATS_MISSED:
            await asyncio.sleep(limits.WORKER_BEAT)
            beats = self._progress.beats(self._number)
            missed = missed + 1 if beats and beats == before else 0
            before = beats
        log.error("worker %d hangs; it is killed", self._number)
        process.kill()

    def _spawn(self, channel: socket.socket) -> "subprocess.Popen[bytes]":
        label = f"{self._number} of {self._of}"  # shown in process lists
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("NOTIFY_SOCKET", None)  # the supervisor notifies systemd
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "apiext.worker", label, str(os.getpid())],
            stdin=channel.fileno(),
            pass_fds=[self._progress.descriptor],
            env=environment,
            start_new_session=True,  # Ctrl-C is for the supervisor, which ends the workers
        )


def share(config: Config, port: int, worker: Worker) -> Config:
    """Return the configuration of one worker.

    The limits of concurrent requests are divided by the number of workers. Only the first worker runs controllers and
    the compaction of etcd.
    """
    first, requests = worker.number == 1, config.requests
    return replace(
        config,
        listening=replace(config.listening, port=port),
        output=replace(config.output, ready_file=""),
        requests=replace(
            requests,
            max_inflight=-(-requests.max_inflight // worker.of),
            max_mutating=-(-requests.max_mutating // worker.of),
        ),
        apis=config.apis if first else replace(config.apis, controllers=()),
        store=config.store if first else replace(config.store, compaction_interval=0.0),
        audit=replace(config.audit, shared_lock=str(config.data_dir / "audit.lock")),
        worker=worker,
    )


@contextlib.contextmanager
def reserved(listening: Listening) -> Iterator[int]:
    """Reserve the address for the workers, and yield its port.

    Raises the errors of ``launch.refused``. The workers listen at the address with SO_REUSEPORT. The supervisor only
    binds sockets to the address: programs without SO_REUSEADDR then cannot use it, and port 0 becomes a free port.
    Supervisors set SO_REUSEADDR, so two supervisors of one user would not notice each other before their workers
    listen. So each of them also binds a name of a Unix socket, which only one process can have.
    """
    with contextlib.ExitStack() as stack:
        try:
            port = bind_all(stack, listening.bind_address, listening.port)
            host = "::" if is_unspecified(listening.bind_address) else listening.bind_address
            _bind_name(stack, f"\0apiext {os.geteuid()} {host}:{port}")
        except OSError as error:
            raise launch.refused(listening, error) from error
        yield port


def _bind_name(stack: contextlib.ExitStack, name: str) -> None:
    """Bind a name that only one process of this user can have.

    Raise OSError if another process of this user has the name. A process of any user can bind such a name. If a process
    of another user has it, try the next name. If none of limits.WORKER_NAMES names is free, bind no name.
    """
    for number in range(limits.WORKER_NAMES):
        held = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            held.bind(f"{name} {number}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE or _holder(f"{name} {number}") == os.geteuid():
                raise
        else:
            held.listen(socket.SOMAXCONN)
            return


def _holder(name: str) -> int | None:
    """Return the user id of the process that listens on a name; None if no process does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(name)
        except OSError:
            return None
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)
        return int(user)


_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group
