"""A server with few descriptors, many idle connections, or little memory for large lists."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import MERGE, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.support.memory_group import MIB, MemoryGroup, memory_group
from tests.support.processes import SERVE, Etcd, Server, running_etcd, running_server
from tests.support.strain import forget_peak, memory, spent

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
NONE: Mapping[str, str] = {}


@contextlib.contextmanager
def limited(directory: Path, prefix: Sequence[str]) -> Iterator[tuple[Server, Client, Resource]]:
    """Run an etcd and a limited server; yield also a client and a resource.

    The server's command begins with words that limit it.
    """
    with running_etcd(directory / "etcd") as etcd, squeezed(etcd, directory, prefix) as server:
        api = Client(server.url)
        yield server, api, serve(api, schema={"openAPIV3Schema": SCHEMA})


@contextlib.contextmanager
def squeezed(etcd: Etcd, directory: Path, prefix: Sequence[str] = (), *more: str) -> Iterator[Server]:
    """Run a server with an existing etcd.

    ``prefix`` are words before its command, ``more`` further flags.
    """
    command = [*prefix, *SERVE]
    flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", *more]
    with running_server(flags, directory / "server", command=command) as server:
        yield server


def write_objects_to_etcd(etcd: Etcd, widgets: Resource, count: int, **spec: object) -> None:
    """Write objects o0000, o0001 … directly to etcd.

    This takes a tenth of the time of creates by the server.
    """
    widgets.create("model", **spec)
    key = f"/registry/{widgets.group}/widgets/default/model".encode()
    found = etcd.call("kv/range", {"key": base64.b64encode(key).decode()})
    value = base64.b64decode(found["kvs"][0]["value"])
    for number in range(count):
        name = b"o%04d" % number
        assert len(name) == len(b"model")
        pair = (key.replace(b"/model", b"/" + name), value.replace(b'"model"', b'"%s"' % name))
        etcd.call("kv/put", dict(zip(("key", "value"), (base64.b64encode(it).decode() for it in pair), strict=True)))
    etcd.call("kv/deleterange", {"key": base64.b64encode(key).decode()})


def _is_served(api: Client) -> bool:
    """Report whether the server accepts a new client.

    It closes new connections until old ones have been closed.
    """
    with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
        return api.get("/readyz").status == 200
    return False


@contextlib.contextmanager
def idle(server: Server, count: int) -> Iterator[None]:
    """Open ``count`` idle connections; the kernel may accept more than the server."""
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
def test_server_responds_with_many_idle_connections(tmp_path: Path, files: int, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < max(files, count + 200):
        pytest.skip(f"this system gives {hard} descriptors to a process")
    with limited(tmp_path, ("sh", "-c", f'ulimit -n {files} && exec "$@"', "limited")) as (server, api, widgets):
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
                    prompt(spent(server) - before, 0.3, "it spins")
                    print(f"{count} idle connections take {grown:.1f} MiB")
                    assert grown < 10 + count * 0.008
                    assert len(os.listdir(f"/proc/{server.pid}/fd")) <= files
                    if files > count:
                        assert api.get("/readyz").status == 200
                until(lambda: _is_served(api), "a new client is served", within=10)
                # waiting connections may use the last descriptors for a short time
                until(lambda: api.post(widgets.path(), widgets.make("b")).status == 201, "b is created", within=10)
                assert watch.next("ADDED", "ERROR")["object"]["metadata"]["name"] in ("a", "b")
            line.close()
            assert server.log is not None
            assert server.log.stat().st_size < 20_000, "it tells the same again and again"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def little_memory(mib: int) -> Iterator[MemoryGroup]:
    """Limit the memory of a server; skip if this machine has no control groups."""
    with memory_group(mib) as group:
        if group is None:
            pytest.skip("this machine allows no control group for memory (the reason is printed above)")
        yield group


def _read_all(url: str, path: str, pace: float, sizes: list[int], headers: Mapping[str, str] = NONE) -> None:
    """Read a list, and append its length in bytes or the error status to ``sizes``.

    Pause for ``pace`` seconds after each part.
    """
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=30) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{lines}Connection: close\r\n\r\n".encode())
        status = int(line.recv(12).split()[1])
        size = 0
        while data := line.recv(MIB):
            size += len(data)
            pause(pace)
        sizes.append(size if status == 200 else status)


def _read_at_once(
    server: Server, path: str, readers: int, pace: float, headers: Mapping[str, str] = NONE
) -> tuple[list[int], float]:
    """Let ``readers`` clients read a list at the same time.

    Return their results (length or status), and the longest wait of a probe.
    """
    api, sizes, waits = Client(server.url), list[int](), [0.0]
    threads = [
        threading.Thread(target=_read_all, args=(server.url, path, pace, sizes, headers)) for _ in range(readers)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert api.get("/readyz").status == 200
        waits.append(time.monotonic() - began)
        pause(0.02)
    assert len(sizes) == readers
    return sizes, max(waits)


def _check_some_readers_get_the_list(
    server: Server, path: str, sizes: list[int], whole: int, headers: Mapping[str, str] = NONE
) -> None:
    """Check that some of many readers get a list, and the other readers an error.

    The list has more than ``whole`` bytes. A single reader gets the list.
    """
    assert all(each > whole or each in (429, 503) for each in sizes)
    assert max(sizes) > whole, "nobody got it"
    alone, _ = _read_at_once(server, path, 1, 0.0, headers)
    assert alone[0] > whole


def test_large_lists_are_served_in_little_memory(tmp_path: Path) -> None:
    count, size, readers = 40, MIB, 10
    with little_memory(256) as group, limited(tmp_path, group.prefix) as (server, _, widgets):
        for number in range(count):
            widgets.create(f"o{number}", text=f"{number:07}" * (size // 7))
        for pace in (0.0, 0.002):
            sizes, waited = _read_at_once(server, widgets.path(), readers, pace)
            print(f"{memory(server, 'VmHWM'):.0f} MiB at most; others waited {waited:.2f} s")
            _check_some_readers_get_the_list(server, widgets.path(), sizes, count * size)
            prompt(waited, 0.5)
        widgets.create("after")
        assert server.process is not None
        assert server.process.poll() is None


def test_objects_that_do_not_fit_into_memory_are_refused(tmp_path: Path) -> None:
    with little_memory(256) as group, limited(tmp_path, group.prefix) as (server, api, widgets):
        widgets.create("small", a=1)
        answers = [
            api.post(widgets.path(), widgets.make(f"o{number}", text=f"{number:07}" * (MIB // 7)))
            for number in range(260)
        ]
        taken = [answer.status for answer in answers].index(429)
        assert {answer.status for answer in answers} == {201, 429}
        assert "too little memory left" in answers[taken].json["message"]
        assert taken > 60
        sizes, waited = _read_at_once(server, widgets.path(), 10, 0.0)
        print(f"{taken} objects of 1 MiB; {memory(server, 'VmHWM'):.0f} MiB at most; others waited {waited:.2f} s")
        _check_some_readers_get_the_list(server, widgets.path(), sizes, taken * MIB)
        prompt(waited, 0.5)
        api.patch(widgets.path("small"), {"spec": {"a": 2}}, MERGE).expect(200)
        api.delete(widgets.path("o0")).expect(200)
        assert server.process is not None
        assert server.process.poll() is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Accept-Encoding": "gzip"},
        pytest.param({"Accept": "application/yaml"}, marks=pytest.mark.long),
        {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
    ],
    ids=["gzip", "yaml", "table"],
)
def test_encoded_lists_are_served_in_little_memory(tmp_path: Path, headers: dict[str, str]) -> None:
    few, many, size, readers = 100, 240, 250_000, 10
    with little_memory(256) as group, limited(tmp_path, group.prefix) as (server, _, widgets):
        random = Random(1)
        path = f"{widgets.path()}?includeObject=Object"
        for first, count in ((0, few), (few, many)):  # a list that fits, then one that does not
            for number in range(first, count):
                widgets.create(f"o{number}", text=random.randbytes(size // 2).hex())
            whole = count * size // 2
            sizes, waited = _read_at_once(server, path, readers, 0.0, headers)
            print(f"{sorted(sizes)}; {memory(server, 'VmHWM'):.0f} MiB at most; others waited {waited:.2f} s")
            if count == few:
                _check_some_readers_get_the_list(server, path, sizes, whole, headers)
            assert all(each > whole or each in (429, 503) for each in sizes)
        assert server.process is not None
        assert server.process.poll() is None
        widgets.create("after")


def test_server_survives_a_store_larger_than_memory(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        with squeezed(etcd, tmp_path) as server:
            api = Client(server.url)
            widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
            write_objects_to_etcd(etcd, widgets, 230, text="x" * MIB)
        # the caches never fill, so readiness would wait for them
        soon = "--storage-initialization-timeout=5s"
        with little_memory(256) as group, squeezed(etcd, tmp_path, group.prefix, soon) as server:
            api = Client(server.url)
            for _ in range(2):
                sizes, _ = _read_at_once(server, widgets.path(), 10, 0.0)
                assert set(sizes) <= {429, 503}
            serve(api, "gadgets").create("a", color="red")
            api.post("/api/v1/namespaces", {"metadata": {"name": "another"}}).expect(201)
            print(f"{memory(server, 'VmHWM'):.0f} MiB at most")
            assert server.process is not None
            assert server.process.poll() is None


def test_listed_objects_are_held_once_in_memory(tmp_path: Path) -> None:
    count, size = 2_500, 16_000
    with running_etcd(tmp_path / "etcd") as etcd:
        with squeezed(etcd, tmp_path) as server:
            widgets = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
            write_objects_to_etcd(etcd, widgets, count, text="12345678" * (size // 8))
        with squeezed(etcd, tmp_path) as server:
            until(lambda: Client(server.url).get(widgets.path("o0001"), resourceVersion=0).status == 200, "filled", 20)
            had = memory(server, "VmRSS")
            for _ in range(2):
                sizes, _ = _read_at_once(server, widgets.path(), 2, 0.0)
                assert min(sizes) > count * size
            grown = memory(server, "VmRSS") - had
            print(f"{had:.0f} MiB with {count * size / MIB:.0f} MiB of objects, {grown:.0f} MiB more once listed")
            assert grown < 0.5 * count * size / MIB


@pytest.mark.rows("WRI-021")
def test_delete_collection_holds_no_decoded_objects(tmp_path: Path) -> None:
    """Only the bytes of the objects are in memory until the last deletion.

    The response is encoded before the first deletion.
    """
    count, fields = 3_000, {f"field{number:02}": number for number in range(80)}
    with running_etcd(tmp_path / "etcd") as etcd, squeezed(etcd, tmp_path) as server:
        widgets = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
        write_objects_to_etcd(etcd, widgets, count, **fields)
        until(lambda: widgets.api.get(widgets.path(f"o{count - 1:04}")).status == 200, "all are there", 20)
        had = memory(server, "VmRSS")
        forget_peak(server)
        gone = widgets.api.delete(widgets.path()).expect(200)
        grown = memory(server, "VmHWM") - had
        print(f"{grown:.0f} MiB more to delete {count} objects")
        assert [item["metadata"]["name"] for item in gone["items"]] == [f"o{number:04}" for number in range(count)]
        assert grown < 15


def test_large_lists_over_tls_use_bounded_memory(tmp_path: Path) -> None:
    count, size, readers = 30, MIB, 6
    flags = ["--port=0", "--token=sesame"]
    with running_etcd(tmp_path / "etcd") as etcd, squeezed(etcd, tmp_path) as plain:
        widgets = serve(Client(plain.url), schema={"openAPIV3Schema": SCHEMA})
        for number in range(count):
            widgets.create(f"o{number}", text=f"{number:07}" * (size // 7))
        with running_server([*flags, f"--etcd-servers={etcd.url}"], tmp_path / "tls") as server:
            _read_securely(server, widgets.path(), [])
            had, sizes, waits = memory(server, "VmRSS"), list[int](), [0.0]
            forget_peak(server)
            threads = [
                threading.Thread(target=_read_securely, args=(server, widgets.path(), sizes)) for _ in range(readers)
            ]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                began = time.monotonic()
                _read_securely(server, "/readyz", [])
                waits.append(time.monotonic() - began)
                pause(0.02)
            grown = memory(server, "VmHWM") - had
            print(f"{grown:.0f} MiB more for {readers} readers; others waited {max(waits):.2f} s")
            assert [each > count * size for each in sizes] == readers * [True]
            assert grown < 0.5 * count * size / MIB
            prompt(max(waits), 0.5)


def _read_securely(server: Server, path: str, sizes: list[int]) -> None:
    """Read a path over TLS, without verification of the certificate.

    Append the number of bytes to ``sizes``.
    """
    where, context = urlsplit(server.url), ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((where.hostname, where.port), timeout=30) as line,
        context.wrap_socket(line) as secured,
    ):
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\nConnection: close\r\n\r\n"
        secured.sendall(head.encode())
        size = 0
        while data := secured.recv(MIB):
            size += len(data)
        sizes.append(size)
