"""The server has little: few descriptors, many idle connections, little memory for large lists; it goes on (F-25)."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.definitions import Resource, serve
from tests.support.http_client import MERGE, Client
from tests.support.processes import SERVE, Server, running_etcd, running_server
from tests.support.strain import memory, spent
from tests.support.waiting import busy, pause, until

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
MIB = 1 << 20
GROUPS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))  # the first is of version 1


@contextlib.contextmanager
def limited(directory: Path, *shell: str) -> Iterator[tuple[Server, Client, Resource]]:
    """Run a server after some words of a shell that take away from it."""
    command = ["sh", "-c", "; ".join((*shell, 'exec "$@"')), "limited", *SERVE]
    with running_etcd(directory / "etcd") as etcd:
        flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}"]
        with running_server(flags, directory / "server", command=command) as server:
            api = Client(server.url)
            yield server, api, serve(api, schema={"openAPIV3Schema": SCHEMA})


@contextlib.contextmanager
def idle(server: Server, count: int) -> Iterator[None]:
    """Hold connections that say nothing; the kernel may take more than the server."""
    address = urlsplit(server.url)
    with contextlib.ExitStack() as stack:
        for number in range(count):
            held = stack.enter_context(socket.socket())
            held.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                held.connect((address.hostname, address.port))
            if number % 200 == 0:
                pause(0.01)
        pause(0.5)
        yield


@pytest.mark.parametrize(("files", "count"), [(256, 600), pytest.param(12_000, 10_000, marks=pytest.mark.long)])
def test_many_connections_and_few_descriptors(tmp_path: Path, files: int, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < max(files, count + 200):
        pytest.skip(f"this system gives {hard} descriptors to a process")
    with limited(tmp_path, f"ulimit -n {files}") as (server, api, widgets):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
        try:
            widgets.create("a")
            line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
            line.connect()
            with api.watch(widgets.path(), resourceVersion=0) as watch:
                had = memory(server, "VmRSS")
                with idle(server, count):
                    line.request("PATCH", widgets.path("a"), '{"spec":{"b":1}}', {"Content-Type": MERGE})
                    answer = line.getresponse()
                    assert (answer.status, b'"b":1' in answer.read()) == (200, True)
                    assert watch.next("MODIFIED")["object"]["spec"] == {"b": 1}
                    before, grown = spent(server), memory(server, "VmRSS") - had
                    pause(1.0)
                    assert spent(server) - before < 0.3 * busy(), "it spins"
                    print(f"{count} idle connections take {grown:.1f} MiB")
                    assert grown < 10 + count * 0.008
                    assert len(os.listdir(f"/proc/{server.pid}/fd")) <= files
                    if files > count:
                        assert api.get("/readyz").status == 200
                until(lambda: api.get("/readyz").status == 200, "a new client is served", 10 * busy())
                widgets.create("b")
                assert watch.next("ADDED", "ERROR")["object"]["metadata"]["name"] in ("a", "b")
            line.close()
            assert server.log is not None
            assert server.log.stat().st_size < 20_000, "it tells the same again and again"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _made(mib: int) -> Path:
    """Make a control group that may use so much memory; skips where that is not possible."""
    last: OSError | None = None
    for parent, name in zip(GROUPS, ("memory.limit_in_bytes", "memory.max"), strict=True):
        group = parent / f"apiext-{os.getpid()}"
        try:
            group.mkdir()
            try:
                (group / name).write_text(f"{mib * MIB}")
                return group
            except OSError:
                group.rmdir()
                raise
        except OSError as error:
            last = error
    print(f"no control group for memory: {last}")
    pytest.skip(f"no control group for memory, which root makes: {last}")


@contextlib.contextmanager
def memory_group(mib: int) -> Iterator[Path]:
    """Have a control group for as long as something runs in it."""
    group = _made(mib)
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty", 10)
        group.rmdir()


def _read_all(url: str, path: str, pace: float, sizes: list[int]) -> None:
    """Read a list as fast as may be, or slowly."""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=30) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        status = int(line.recv(12).split()[1])
        size = 0
        while data := line.recv(MIB):
            size += len(data)
            pause(pace)
        sizes.append(size if status == 200 else status)


def test_large_lists_in_little_memory(tmp_path: Path) -> None:
    count, size, readers = 40, MIB, 10
    with memory_group(256) as group, limited(tmp_path, f"echo $$ > {group}/cgroup.procs") as (server, api, widgets):
        for number in range(count):
            widgets.create(f"o{number}", text=f"{number:07}" * (size // 7))
        for pace in (0.0, 0.002):
            sizes: list[int] = []
            threads = [
                threading.Thread(target=_read_all, args=(server.url, widgets.path(), pace, sizes))
                for _ in range(readers)
            ]
            for thread in threads:
                thread.start()
            waits = [0.0]
            while any(thread.is_alive() for thread in threads):
                began = time.monotonic()
                assert api.get("/readyz").status == 200
                waits.append(time.monotonic() - began)
                pause(0.02)
            print(f"{memory(server, 'VmHWM'):.0f} MiB at most; others waited {max(waits):.2f} s")
            assert len(sizes) == readers
            assert all(each > count * size or each in (429, 503) for each in sizes)
            assert max(waits) < 0.5 * busy()
        widgets.create("after")
        assert server.process is not None
        assert server.process.poll() is None
