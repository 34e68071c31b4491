"""Two servers: clients continuously create objects in a repeatedly deleted namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, until
from tests.support.processes import Etcd, running_server

NAMESPACES = "/api/v1/namespaces"
ROUNDS, WRITERS = 8, 4
AGAIN = 16


@pytest.fixture
def pair(own_etcd: Etcd, tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]
    with running_server(flags, tmp_path / "one") as one, running_server(flags, tmp_path / "two") as two:
        yield Client(one.url), Client(two.url)


def keep_creating(api: Client, widgets: Resource, namespace: str, writer: int, stop: Event) -> list[int]:
    codes: list[int] = []
    while not stop.is_set():
        body = widgets.make(f"w{writer}-{len(codes)}")
        codes.append(api.post(widgets.path("", namespace), body).status)
    return codes


@pytest.mark.rows("NSP-004", "NSP-005")
def test_deleted_namespace_leaves_no_objects(pair: tuple[Client, Client]) -> None:
    one, two = pair
    widgets = serve(one)
    until(lambda: two.get(widgets.path()).status == 200, "the other serves widgets", within=10)
    for number in range(ROUNDS):
        name = f"short-{number}"
        one.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).expect(201)
        stop = Event()
        with ThreadPoolExecutor(WRITERS) as pool:
            runs = [
                pool.submit(keep_creating, pair[writer % 2], widgets, name, writer, stop) for writer in range(WRITERS)
            ]
            with contextlib.ExitStack() as stack:
                stack.callback(stop.set)
                until(lambda name=name: one.get(widgets.path("", name)).expect(200)["items"], "creates come through")
                one.delete(f"{NAMESPACES}/{name}").expect(200)
                until(lambda name=name: one.get(f"{NAMESPACES}/{name}").status == 404, "it is gone", within=30)
        codes = {code for run in runs for code in run.result()}
        assert codes <= {201, 403, 404}, codes
        assert one.get(widgets.path("", name)).expect(200)["items"] == []
        assert two.get(widgets.path("", None)).expect(200)["items"] == []


@pytest.mark.rows("NSP-004", "NSP-005")
def test_namespace_created_again_at_once_is_kept(pair: tuple[Client, Client]) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "again"}}
    one, two = pair
    for _ in range(AGAIN):
        made = until(lambda: (it := one.post(NAMESPACES, body)).status == 201 and it.json, "it is made", every=0.001)
        path = f"{NAMESPACES}/again/configmaps"
        held = one.post(path, {"metadata": {"name": "new"}}).expect(201)
        pause(0.1)  # the other server may still handle the end of the previous namespace
        for api in pair:
            found = api.get(f"{NAMESPACES}/again").expect(200)
            assert found["metadata"]["uid"] == made["metadata"]["uid"]
            assert found["status"] == {"phase": "Active"}
            assert api.get(f"{path}/new").expect(200)["metadata"]["uid"] == held["metadata"]["uid"]
        two.delete(f"{NAMESPACES}/again").expect(200)
