import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from apiext import cli, launch, limits, logs, supervisor
from apiext.auth import kubeconfig
from apiext.config import Config, ConfigError, EtcdConfig, Worker
from apiext.system import files
from apiext.system.worker_progress import GONE, WorkerProgress
from tests.support.configs import config_of
from tests.support.shared import ROOT
from tests.unit.test_cli import parse


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as found:
        yield found


def config(data_dir: Path = Path("unused"), **more: object) -> Config:
    return config_of(data_dir, workers=2, **{"port": 0, **more})


def test_reserved_port_accepts_only_reuse_port_sockets() -> None:
    with supervisor.reserved(config().listening) as port:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with (
            socket.create_server(("127.0.0.1", port), reuse_port=True) as one,
            socket.create_server(("127.0.0.1", port), reuse_port=True) as two,
        ):
            assert one.getsockname() == two.getsockname()
    with supervisor.reserved(config(port=port).listening) as again:
        assert again == port


def test_reserved_port_covers_all_addresses_of_a_host_name() -> None:
    with supervisor.reserved(config(bind_address="localhost").listening) as port:
        for family, *_, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
            with socket.socket(family) as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(address)


def test_port_in_use_by_another_process_is_refused(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    text = f"cannot listen on 127.0.0.1:{port}: "
    with pytest.raises(launch.PortInUseError, match=text), supervisor.reserved(config(port=port).listening):
        pass


def test_two_supervisors_that_start_at_the_same_time_do_not_share_a_port() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(supervisor.reserved(config().listening))
        with pytest.raises(launch.PortInUseError):
            stack.enter_context(supervisor.reserved(config(port=port).listening))


SQUATTER = """
import socket, sys
held = [socket.socket(socket.AF_UNIX) for name in sys.argv[2:]]
for one, name in zip(held, sys.argv[2:]):
    one.bind(chr(0) + name)
    if sys.argv[1] == "listening":
        one.listen(1)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["bound", "listening"])
def test_lock_name_taken_by_another_user_blocks_no_supervisor(how: str) -> None:
    if how == "listening" and os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    with supervisor.reserved(config().listening) as port:
        pass
    names = [f"apiext 127.0.0.1:{port}", f"apiext {os.geteuid()} 127.0.0.1:{port} 0"]
    other = {"user": 12_345} if os.geteuid() == 0 else {}
    command = [sys.executable, "-c", SQUATTER, how, *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", **other) as taken:
        assert taken.stdout is not None
        assert taken.stdout.readline() == b"ready\n"
        with (
            supervisor.reserved(config(port=port).listening) as again,
            pytest.raises(launch.PortInUseError),
            supervisor.reserved(config(port=again).listening),
        ):
            pass
        taken.kill()


@pytest.mark.parametrize("address", ["192.0.2.7", "no such host"])
def test_foreign_bind_address_is_refused(address: str) -> None:
    with (
        pytest.raises(ConfigError, match=f"--bind-address {address}: "),
        supervisor.reserved(config(bind_address=address).listening),
    ):
        pass


def test_worker_configuration_has_its_share_of_limits() -> None:
    given = config(max_inflight=400, max_mutating=3, ready_file="ready", shutdown_delay=1.5)
    shares = [supervisor.share(given, 6443, Worker(number, 3)) for number in (1, 2, 3)]
    assert {
        (it.listening.port, it.requests.max_inflight, it.requests.max_mutating, it.output.ready_file) for it in shares
    } == {(6443, 134, 1, "")}
    assert [it.store.compaction_interval for it in shares] == [300.0, 0.0, 0.0]
    assert [it.apis.runs("garbage-collector-controller") for it in shares] == [True, False, False]
    assert [it.first for it in (given, *shares)] == [True, True, False, False]
    assert len({it.audit.shared_lock for it in shares}) == 1
    assert {it.listening.shutdown_delay for it in shares} == {1.5}


def test_unlimited_requests_stay_unlimited_in_workers() -> None:
    shared = supervisor.share(config(max_inflight=0, max_mutating=0), 1, Worker(1, 2))
    assert (shared.requests.max_inflight, shared.requests.max_mutating) == (0, 0)


def test_worker_progress_is_shared_between_processes() -> None:
    progress = WorkerProgress.make(3)
    assert not progress.behind(GONE)
    progress.put(1, 70)
    code = (
        f"from apiext.system.worker_progress import WorkerProgress; WorkerProgress({progress.descriptor}, 3).put(3, 50)"
    )
    subprocess.run([sys.executable, "-c", code], pass_fds=[progress.descriptor], cwd=ROOT, check=True, timeout=30)
    assert progress.behind(71) == {1: 70, 3: 50}
    assert progress.behind(51) == {3: 50}
    progress.put(3, GONE)
    assert progress.behind(71) == {1: 70}
    assert not progress.behind(70)


@pytest.mark.parametrize(
    ("beats", "still"),
    [
        ([0] * 30, False),  # the worker has not begun, or reported its end
        (list(range(1, 30)), False),
        ([1, 2, 2, 2, 3, 4, 4, 4, 0, 0, 0, 0, 0], False),
        ([0, 0, 5, 6, 6, 6, 6, 6], True),
    ],
)
async def test_worker_without_heartbeat_is_killed(
    beats: list[int], still: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "WORKER_BEATS_MISSED", 4)
    monkeypatch.setattr(limits, "WORKER_BEAT", 0.0)
    progress, seen, over = WorkerProgress.make(1), iter(beats), asyncio.Event()

    def look(_: int) -> int:
        if (found := next(seen, None)) is None:
            over.set()
        return found or 0

    monkeypatch.setattr(progress, "beats", look)
    slot = supervisor.Slot(config(worker=Worker(1, 1, progress.descriptor)), progress, asyncio.Event(), lambda _: None)
    process = await asyncio.create_subprocess_exec("sleep", "60")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(slot._watch(process)), group.create_task(over.wait())]  # type: ignore[arg-type]
        await asyncio.wait(tasks, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in tasks] == [still, not still]
        for task in tasks:
            task.cancel()
    if not still:
        process.terminate()
    assert await process.wait() == (-signal.SIGKILL if still else -signal.SIGTERM)
    assert caplog.text.count("worker 1 hangs; it is killed") == still


@pytest.mark.parametrize(
    ("text", "cores", "group", "workers"),
    [
        ("1", 4, "max 100000", 1),
        ("3", 1, "max 100000", 3),
        ("auto", 4, "max 100000", 4),
        ("auto", 4, "250000 100000", 3),
        ("auto", 4, "10000 100000", 1),
        ("auto", 4, None, 4),
        ("auto", 1000, None, 64),
    ],
)
def test_number_of_workers_follows_cores_and_cpu_quota(
    text: str, cores: int, group: str | None, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = tmp_path / "cpu.max"
    if group is not None:
        bound.write_text(f"{group}\n")
    monkeypatch.setattr(cli, "CPU_BOUND", bound)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    flags = [f"--data-dir={tmp_path}", f"--workers={text}"]
    assert parse(*flags, "--etcd-servers=http://etcd:2379")[0].workers == workers
    if text != "3":
        assert parse(*flags)[0].workers == 1, "a store in the process is that of one"


def test_blocked_log_output_does_not_block_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_LINES", 10)
    monkeypatch.setattr(limits, "LOG_FLUSH", 5.0)
    read, seen = threading.Event(), list[str]()

    def write(line: str) -> None:
        read.wait(20)
        seen.append(line)

    handler = logs.ThreadedHandler(write)
    for number in range(30):
        handler.handle(logging.makeLogRecord({"msg": f"line {number}"}))
    assert not seen
    read.set()
    handler.flush()
    handler.handle(logging.makeLogRecord({"msg": "the last"}))
    handler.flush()
    kept = len(seen) - 2
    assert seen == [
        *(f"line {number}" for number in range(kept)),
        f"{30 - kept} log lines were dropped here",
        "the last",
    ]
    assert 10 <= kept <= 11


def test_output_pipes_are_written_and_not_replaced(tmp_path: Path) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    launch.prepare(config(tmp_path, ready_file=str(place)))
    files.write(place, b"{}\n")
    kubeconfig.write(place, kubeconfig.Access("http://x"))
    first, _, rest = os.read(reader, 10_000).partition(b"\n")
    assert first == b"{}"
    assert json.loads(rest)["kind"] == "Config"
    os.close(reader)
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("text", ["0", "-1", "65", "many", "1.5"])
def test_invalid_number_of_workers_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--workers {text}: "):
        parse(f"--data-dir={tmp_path}", f"--workers={text}")


def test_workers_need_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert parse(f"--data-dir={tmp_path}", "--workers=auto")[0].workers == 1
    with pytest.raises(ConfigError, match="needs Linux"):
        parse(f"--data-dir={tmp_path}", "--workers=2")


STOPPED = "a signal stopped the server before it was ready"


async def stop_error(boss: supervisor.Supervisor) -> str:
    """Run a supervisor until a signal stops it; return the error."""
    with pytest.raises(launch.StoppedError) as ended:
        await boss.serve()
    assert launch.explain(ended.value, supervisor.EXITS) == cli.EXIT_FAILURE
    return str(ended.value)


async def test_a_signal_before_workers_start_ends_the_supervisor(tmp_path: Path, listening: socket.socket) -> None:
    given = config(tmp_path, port=listening.getsockname()[1], etcd=EtcdConfig(("http://127.0.0.1:1",)))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(stop_error(supervisor.Supervisor(given, print)))
        await asyncio.sleep(0)  # the port is in use: the supervisor waits
        listening.close()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await task == STOPPED


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [
        ((-15, -15), None),  # -15: SIGTERM arrived before the worker handled it
        ((1, 1), None),
        ((0, -15), 0),  # the first worker has served
        ((0, 0), 0),
        ((0, 4), 0),
        ((4, 0), 0),
        ((4, 1), 4),  # etcd did not answer
    ],
)
async def test_interrupted_start_exits_with_code_of_one_process(
    tmp_path: Path, codes: tuple[int, int], wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(codes)

    async def run_workers(slot: supervisor.Slot) -> None:
        if len(left) == len(codes):
            os.kill(os.getpid(), signal.SIGTERM)
        code = left.pop(0)
        await slot._stop.wait()
        slot._ended(code)

    monkeypatch.setattr(supervisor.Slot, "run_workers", run_workers)
    given = config(tmp_path, etcd=EtcdConfig(("http://127.0.0.1:1",)))
    async with asyncio.timeout(10):
        boss = supervisor.Supervisor(given, print)
        if wanted is None:
            assert await stop_error(boss) == STOPPED
        else:
            assert await boss.serve() == wanted
    assert not left


async def test_failed_worker_start_ends_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_workers(slot: supervisor.Slot) -> None:
        await slot.may_start.wait()
        if slot._number == 1:
            slot.ready.set_result(["http://x", "kubeconfig"])
            await slot._stop.wait()
            slot._ended(0)
        else:
            slot._ended(2)

    monkeypatch.setattr(supervisor.Slot, "run_workers", run_workers)
    boss = supervisor.Supervisor(config(tmp_path, etcd=EtcdConfig(("http://127.0.0.1:1",))), print)
    async with asyncio.timeout(10):
        assert await boss.serve() == 2
    assert not boss._progress.all_serve
