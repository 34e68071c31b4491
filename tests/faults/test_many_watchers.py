"""Hundreds of watchers, some of which never read, while the server stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import prompt, until
from tests.support.processes import Etcd, Server, running_etcd, running_server
from tests.support.strain import memory

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
WATCHERS, WRITERS = 800, 8
STALLED, EVENTS, EVENT = 20, 40, 300_000
_NUMBER = re.compile(rb'"spec":\{"number":([0-9]+)')


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd for all servers of this module."""
    with running_etcd(tmp_path_factory.mktemp("watchers-etcd")) as started:
        yield started


@contextlib.contextmanager
def running_with_widgets(etcd: Etcd, directory: Path) -> Iterator[tuple[Server, Resource]]:
    """Run a server with one resource."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", f"--etcd-prefix=/{directory.name}"]
    with running_server(flags, directory) as server:
        yield server, serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})


def open_watch(server: Server, widgets: Resource, buffer: int = 0) -> socket.socket:
    """Return the socket of a new watch."""
    address = urlsplit(server.url)
    line = socket.socket()
    if buffer:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    line.settimeout(30)
    line.connect((address.hostname, address.port))
    line.sendall(f"GET {widgets.path()}?watch=true&resourceVersion=0 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return line


@pytest.mark.rows("RV-017")
def test_stalled_watchers_cost_little_and_miss_no_event(etcd: Etcd, tmp_path: Path) -> None:
    with running_with_widgets(etcd, tmp_path) as (server, widgets), contextlib.ExitStack() as stack:
        widgets.create("a")
        stalled = [stack.enter_context(open_watch(server, widgets, 65_536)) for _ in range(STALLED)]
        with widgets.api.watch(widgets.path(), resourceVersion=0) as watch:
            watch.next("ADDED")
            had = memory(server, "VmRSS")
            for number in range(EVENTS):
                changed = {"spec": {"number": number, "text": f"{number:07}" * (EVENT // 7)}}
                widgets.api.patch(widgets.path("a"), changed).expect(200)
                assert watch.next("MODIFIED")["object"]["spec"]["number"] == number
            grown = memory(server, "VmRSS") - had
        print(f"{STALLED} watchers that never read take {grown:.0f} MiB of {EVENTS * EVENT >> 20} MiB of events")
        # the events once, as much free memory in the heap, and 1 MiB for each watcher
        assert grown < STALLED + 2 * EVENTS * EVENT / 1e6, "stalled ones have events of their own"
        for numbers, over in map(_read_numbers, stalled):
            assert numbers == list(range(len(numbers))), "events are missing in the middle"
            assert over or len(numbers) == EVENTS


def _read_numbers(line: socket.socket) -> tuple[list[int], bool]:
    """Read until the last event or the end; return the numbers, and whether the watch has ended."""
    last, numbers = b"", []
    with contextlib.suppress(ConnectionResetError):
        while (not numbers or numbers[-1] < EVENTS - 1) and (data := line.recv(1 << 20)):
            *lines, last = (last + data).split(b"\n")
            numbers += [int(found[1]) for found in map(_NUMBER.search, lines) if found]
            if any(b'"type":"ERROR"' in each for each in lines):
                return numbers, True
        return numbers, False
    return numbers, True


@dataclass
class Ended:
    """The observations of clients while a server stops."""

    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0
    reset: list[str] = field(default_factory=list)  # by the kernel, since the server had not accepted the connection
    wrong: list[str] = field(default_factory=list)


def _write(server: Server, widgets: Resource, number: int, seen: Ended) -> None:
    """Create objects, each with a new connection, until connections are refused."""
    for count in range(100_000):
        name = f"w{number}-{count}"
        line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
        try:
            line.connect()
        except OSError:
            seen.refused += 1
            return
        try:
            line.request("POST", widgets.path(), json.dumps(widgets.make(name)), {"Content-Type": "application/json"})
            answer = line.getresponse()
            answer.read()
        except ConnectionResetError:
            seen.reset.append(name)
            continue
        except (OSError, http.client.HTTPException) as failure:
            seen.wrong.append(f"{name}: {failure!r}")
            return
        finally:
            line.close()
        if answer.status == 201:
            seen.acknowledged.append(name)
        elif answer.status not in (429, 503):
            seen.wrong.append(f"{name}: {answer.status}")


def _names_until_the_end(line: socket.socket) -> tuple[set[str], bool]:
    """Return the object names that a watcher received, and whether its stream ended cleanly."""
    with line, line.makefile("rb") as stream:
        response = stream.read()
    names = {piece.split(b'"', 1)[0].decode() for piece in response.split(b'"name":"')[1:]}
    return names, response.endswith(b"0\r\n\r\n")


@pytest.mark.rows("RV-017", "WRI-005")
def test_shutdown_completes_watches_and_pending_writes(etcd: Etcd, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WATCHERS + 200
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        pytest.skip(f"this system gives {hard} descriptors to a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    seen = Ended()
    with running_with_widgets(etcd, tmp_path) as (server, widgets):
        watching = [open_watch(server, widgets) for _ in range(WATCHERS)]
        threads = [threading.Thread(target=_write, args=(server, widgets, at, seen)) for at in range(WRITERS)]
        for thread in threads:
            thread.start()
        until(lambda: len(seen.acknowledged) > 50, "writers are at work")
        assert server.process is not None
        began = time.monotonic()
        server.process.terminate()
        assert server.process.wait(30) == 0
        took = time.monotonic() - began
        for thread in threads:
            thread.join(30)
    told = [_names_until_the_end(line) for line in watching]
    print(f"{len(seen.acknowledged)} writes, {len(seen.reset)} reset; the server ended in {took:.1f} s")
    prompt(took, 10)
    assert not seen.wrong, seen.wrong[:5]
    assert seen.refused == WRITERS
    assert all(whole for _, whole in told), f"{sum(not whole for _, whole in told)} streams have no end"
    with running_with_widgets(etcd, tmp_path) as (server, _):
        items = Client(server.url).get(widgets.path()).expect(200)["items"]
    there = {item["metadata"]["name"] for item in items}
    assert there >= set(seen.acknowledged)
    assert there.isdisjoint(seen.reset), "a request was cut off and happened all the same"
