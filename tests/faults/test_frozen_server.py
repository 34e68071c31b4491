"""A server that was paused while another server continued has missed no change."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, Client
from apiext.conformance.support.waiting import pause, until
from tests.faults.checkers import violations
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.processes import Server, running_etcd, running_server

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
ROUNDS = 2


class Waiting:
    """A request that was sent to a paused server."""

    def __init__(self, server: Server, method: str, path: str, body: str = "") -> None:
        address = urlsplit(server.url)
        self._line = socket.create_connection((address.hostname, address.port), timeout=20)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._line.sendall(f"{head}\r\n{body}".encode())

    def status(self) -> tuple[int, str]:
        """Wait until the server runs again; return the status code and the response."""
        with self._line, self._line.makefile("rb") as answer:
            whole = answer.read().decode()
        return int(whole.split()[1]), whole


def _send_while_paused(server: Server, meanwhile: Callable[[], list[Waiting]], seconds: float) -> list[tuple[int, str]]:
    """Send the requests of ``meanwhile`` while a server is paused; return the responses."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        sent = meanwhile()
        pause(seconds)
    finally:
        server.process.send_signal(signal.SIGCONT)
    return [waiting.status() for waiting in sent]


def _check_reads_are_fresh(asleep: Server, awake: Resource, seconds: float) -> None:
    """Check that a successful read contains a write that was acknowledged before the read."""
    path = awake.path("seen")

    def meanwhile() -> list[Waiting]:
        pause(0.3)
        written = awake.api.patch(path, {"spec": {"n": random.random()}}).expect(200)
        revisions.append(written["metadata"]["resourceVersion"])
        return [Waiting(asleep, "GET", path), Waiting(asleep, "GET", awake.path())]

    revisions: list[str] = []
    for status, body in _send_while_paused(asleep, meanwhile, seconds):
        assert status in (200, 429, 503, 504), body
        assert status != 200 or f'"resourceVersion":"{revisions[0]}"' in body, (revisions, body)


def _check_writes_follow_the_new_definition(asleep: Server, awake: Client, seconds: float) -> None:
    """Check that no write is stored that the changed definition forbids.

    Check the same for a write whose definition was deleted.
    """
    group = fresh_group()
    for plural in ("widgets", "gadgets"):
        establish(awake, definition(group, plural))
    until(lambda: Client(asleep.url).get(f"/apis/{group}/v1/gadgets").status == 200, "both serve it", within=5)
    body = '{"apiVersion":"%s/v1","kind":"%s","metadata":{"name":"late"},"spec":{"color":"red"}}'
    places = {kind: f"/apis/{group}/v1/namespaces/default/{kind.lower()}s" for kind in ("Widget", "Gadget")}
    colour = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/maxLength"

    def meanwhile() -> list[Waiting]:
        sent = [Waiting(asleep, "POST", place, body % (group, kind)) for kind, place in places.items()]
        changed = [{"op": "add", "path": colour, "value": 2}]
        awake.patch(f"{DEFINITIONS}/widgets.{group}", changed, JSON_PATCH).expect(200)
        awake.delete(f"{DEFINITIONS}/gadgets.{group}").expect(200)
        until(lambda: awake.get(places["Gadget"]).status == 404, "the definition is gone", within=10)
        until(lambda: awake.post(places["Widget"], body % (group, "Widget")).status == 422, "it tells", within=5)
        return sent

    (widget, told), (gadget, _) = _send_while_paused(asleep, meanwhile, seconds)
    assert widget in (422, 429, 500, 503, 504), told
    assert gadget in (404, 405, 429, 500, 503, 504)
    assert awake.get(places["Widget"]).expect(200)["items"] == []
    establish(awake, definition(group, "gadgets"))
    assert awake.get(places["Gadget"]).expect(200)["items"] == []


@pytest.mark.rows("RV-017", "RV-009", "WRI-005")
def test_resumed_server_has_missed_no_change(tmp_path: Path) -> None:
    chance = random.Random(5)
    with running_etcd(tmp_path / "etcd") as etcd:
        flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}"]
        with running_server(flags, tmp_path / "a") as asleep, running_server(flags, tmp_path / "b") as awake:
            api = Client(awake.url)
            seen, of_asleep, of_awake = (serve(api, schema={"openAPIV3Schema": SCHEMA}) for _ in range(3))
            seen.create("seen")
            until(lambda: Client(asleep.url).get(of_asleep.path()).status == 200, "both serve it", within=5)
            since = etcd_reader.head(etcd)
            loads = [
                (Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed=5), widgets)
                for server, widgets in ((asleep, of_asleep), (awake, of_awake))
            ]
            for load, _ in loads:
                load.start(2, 2)
            for _ in range(ROUNDS):
                _check_reads_are_fresh(asleep, seen, chance.uniform(0, 1.5))
                _check_writes_follow_the_new_definition(asleep, api, chance.uniform(0, 1.0))
            found = []
            for load, widgets in loads:
                load.finish()
                kept = etcd_reader.history(etcd, f"/registry/{widgets.group}/widgets/", since + 1)
                found += violations(load.history, kept)
            assert "Traceback" not in asleep.log_tail() + awake.log_tail()
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20])
