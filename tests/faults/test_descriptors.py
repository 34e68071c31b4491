"""A server without free file descriptors.

It logs this, refuses new connections with a 503, and continues.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import SERVE, Etcd, running_server

WATCHES = 450


def limited(number: int) -> list[str]:
    """Return a command that runs the server with at most ``number`` file descriptors."""
    return ["sh", "-c", f'ulimit -n {number}; exec "$@"', "sh", *SERVE]


def test_connections_without_free_descriptors_get_503(tmp_path: Path, own_etcd: Etcd) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/descriptors"]
    with running_server(flags, tmp_path, command=limited(300)) as server, contextlib.ExitStack() as stack:
        api = Client(server.url)
        widgets = serve(api)
        widgets.create("a")
        place, opened, refused, silent = urlsplit(server.url), 0, 0, 0
        request = f"GET {widgets.path()}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        for _ in range(WATCHES):
            watch = stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=30))
            with contextlib.suppress(ConnectionError):
                watch.sendall(request)
                answer = watch.recv(4096)
                opened += answer.startswith(b"HTTP/1.1 200 ")
                refused += answer.startswith(b"HTTP/1.1 503 ")
                silent += not answer
                if answer.startswith(b"HTTP/1.1 503 "):
                    head, _, body = answer.partition(b"\r\n\r\n")
                    assert b"\r\nRetry-After: 1\r\n" in head
                    assert json.loads(body)["reason"] == "ServiceUnavailable"
        assert 150 < opened < 300
        assert (refused, silent) == (WATCHES - opened, 0)
        assert server.log is not None
        told = [line for line in server.log.read_text().splitlines() if "file descriptors are open" in line]
        assert len(told) == 1
        stack.pop_all().close()
        until(lambda: api.get("/readyz").status == 200, "there is room again")
        metrics = api.get("/metrics").text
        counted = re.search(r"^apiext_connections_refused_total (\d+)$", metrics, re.MULTILINE)
        assert counted is not None
        assert int(counted[1]) >= refused  # a request of /readyz may have been refused, too
        assert "\nprocess_max_fds 300\n" in metrics


def test_low_descriptor_limit_warns_only_if_flags_exceed_it(tmp_path: Path, own_etcd: Etcd) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/descriptors"]
    for number, more in enumerate(([], ["--max-requests-inflight=5000"])):
        directory = tmp_path / str(number)
        with running_server([*flags, *more], directory, command=limited(1024)) as server:
            assert server.log is not None
            lines = until(lambda: '"ready"' in (it := server.log.read_text()) and it, "the line").splitlines()
        ready = next(json.loads(line) for line in lines if '"ready"' in line)
        assert ready["maxOpenFiles"] == 1024
        warned = [line for line in lines if "files only" in line]
        assert len(warned) == len(more)
        assert all("--max-requests-inflight 5000: the process may open 1024 files only" in line for line in warned)
