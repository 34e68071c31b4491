"""The server is killed while it deletes the objects of a definition and a namespace.

The next server continues.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from apiext.conformance.support.definitions import Resource, condition, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until
from tests.support import etcd_reader
from tests.support.processes import Etcd, Server, running_etcd, start_server, stop

COUNT, HELD, WRITERS = 500, 3, 4
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


@contextlib.contextmanager
def running_servers(etcd: Etcd, directory: Path) -> Iterator[list[Server]]:
    """Run a server; yield a list whose last server is the running one."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}"]
    servers = [start_server(directory, flags)]
    try:
        yield servers
    finally:
        for server in servers:
            if server.process is not None:
                stop(server.process)


def restart_server(servers: list[Server], etcd: Etcd, directory: Path) -> Client:
    """Kill the server and start a new one; return a client of it."""
    process = servers[-1].process
    assert process is not None
    process.kill()
    process.wait()
    servers.append(start_server(directory, ["--insecure", "--port=0", f"--etcd-servers={etcd.url}"]))
    return Client(servers[-1].url)


def create_objects(api: Client, widgets: Resource, namespace: str) -> None:
    """Create objects; some of them have a finalizer."""

    def create(first: int) -> None:
        for number in range(first, COUNT, WRITERS):
            made = widgets.make(f"w{number}")
            if number < HELD:
                made["metadata"]["finalizers"] = ["example.com/held"]
            api.post(widgets.path("", namespace), made).expect(201)

    threads = [threading.Thread(target=create, args=(first,)) for first in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_until_begun(etcd: Etcd, widgets: Resource, namespace: str) -> None:
    """Wait until some objects are deleted; check that many remain."""
    prefix = f"/registry/{widgets.group}/widgets/{namespace}/"
    until(lambda: len(etcd_reader.state(etcd, prefix)) < COUNT, "it has begun", every=0.002)
    left = len(etcd_reader.state(etcd, prefix))
    print(f"{left} of {COUNT} objects are left")
    assert left > HELD, "it was over before the kill"


def wait_until_deleted(api: Client, path: str) -> None:
    """Wait until an object is deleted."""
    until(lambda: api.get(path).status == 404, f"{path} has gone", within=15)


def remove_finalizers(api: Client, widgets: Resource, namespace: str, etcd: Etcd) -> None:
    """Wait until only objects with finalizers remain, and remove their finalizers."""
    prefix = f"/registry/{widgets.group}/widgets/{namespace}/"
    until(lambda: len(etcd_reader.state(etcd, prefix)) == HELD, "all that may go have gone", within=30)
    for number in range(HELD):
        held = api.get(widgets.path(f"w{number}", namespace)).expect(200)
        assert held["metadata"]["deletionTimestamp"]
        api.patch(widgets.path(f"w{number}", namespace), {"metadata": {"finalizers": None}}).expect(200)
    until(lambda: not etcd_reader.state(etcd, prefix), "the last have gone", within=15)


def test_deletions_continue_after_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "server"
    with running_etcd(tmp_path / "etcd") as etcd, running_servers(etcd, directory) as servers:
        api = Client(servers[-1].url)
        api.post("/api/v1/namespaces", {"metadata": {"name": "full"}}).expect(201)
        kept, gone = (serve(api, schema={"openAPIV3Schema": SCHEMA}) for _ in range(2))
        places = ((kept, "full", "/api/v1/namespaces/full"), (gone, "default", f"{DEFINITIONS}/widgets.{gone.group}"))
        for widgets, namespace, _ in places:
            create_objects(api, widgets, namespace)
        for widgets, namespace, path in places:
            api.delete(path).expect(200)
            wait_until_begun(etcd, widgets, namespace)
        api = restart_server(servers, etcd, directory)
        for widgets, namespace, path in places:
            found = api.get(path).expect(200)
            assert found["status"].get("phase") == "Terminating" or condition(found, "Terminating"), found["status"]
            assert api.post(widgets.path("", namespace), widgets.make("late")).status == 403
        for widgets, namespace, path in places:
            remove_finalizers(api, widgets, namespace, etcd)
            wait_until_deleted(api, path)
        assert api.get(kept.path()).status == 200
