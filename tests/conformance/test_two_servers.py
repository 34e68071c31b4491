"""Two servers with one etcd: each serves the writes of the other at once and consistently."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.support.processes import Etcd, Server, running_server

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def servers(own_etcd: Etcd, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]
    with running_server(flags, tmp_path / "one") as one, running_server(flags, tmp_path / "two") as two:
        yield one, two


@pytest.fixture
def pair(servers: tuple[Server, Server]) -> tuple[Client, Client]:
    one, two = servers
    return Client(one.url), Client(two.url)


@pytest.mark.rows("ETC-010", "RV-017")
def test_peer_serves_a_new_definition_within_a_second(pair: tuple[Client, Client]) -> None:
    one, two = pair
    wanted = definition(fresh_group())
    group = wanted["spec"]["group"]
    establish(one, wanted)
    began = time.monotonic()
    two.get(f"/apis/{group}/v1/widgets").expect(200)
    prompt(time.monotonic() - began, 1)


@pytest.mark.rows("RV-017", "WRI-005")
def test_peer_reads_and_updates_an_object_at_once(pair: tuple[Client, Client]) -> None:
    one, two = pair
    widgets = serve(one)
    for number in range(50):
        made = widgets.create(f"w{number}")
        assert two.get(widgets.path(f"w{number}")).expect(200) == made
        changed = {**made, "spec": {"color": "red"}}
        two.put(widgets.path(f"w{number}"), changed).expect(200)
        assert one.get(widgets.path(f"w{number}")).expect(200)["spec"]["color"] == "red"
        assert one.put(widgets.path(f"w{number}"), changed).status == 409


@pytest.mark.rows("DEL-004", "DEL-005")
def test_definition_deleted_by_a_peer_blocks_creates(pair: tuple[Client, Client]) -> None:
    one, two = pair
    widgets = serve(one)
    held = widgets.make("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    one.post(widgets.path(), held).expect(201)
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    two.delete(name).expect(200)
    refused = one.post(widgets.path(), widgets.make("late"))
    assert refused.status == 403
    assert "create not allowed while custom resource definition is terminating" in refused.expect(403)["message"]
    patch = {"metadata": {"finalizers": None}}
    one.patch(widgets.path("held"), patch).expect(200)
    until(lambda: two.get(name).status == 404, "the definition is gone", 10)
    assert one.get(widgets.path()).status == 404


@contextlib.contextmanager
def paused_server(server: Server) -> Iterator[ThreadPoolExecutor]:
    """Pause a server; yield an executor for requests, which the server answers after the block."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as asking:
            yield asking
            pause(0.1)  # until the requests wait for the server
            os.kill(server.pid, signal.SIGCONT)
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.rows("ETC-010", "WRI-014")
def test_body_is_decoded_by_the_newest_definition_of_a_peer(servers: tuple[Server, Server]) -> None:
    """The second server compiles a new definition before it answers a request for its resource."""
    one, two = (Client(server.url) for server in servers)
    fields: dict[str, Any] = {f"field{number:04}": {"type": "string", "maxLength": 10} for number in range(2_500)}
    made = serve(one, schema=schema_of(fields))
    name = f"{DEFINITIONS}/widgets.{made.group}"
    until(lambda: two.get(made.path()).status == 200, "the other serves it", 20)
    two.post(made.path(), {**made.make("old"), "spec": {}}).expect(201)
    for number in range(4):
        fresh, new = f"fresh{number}", f"new{number}"
        fields[fresh] = {"type": "string", "enum": ["given", "filled"], "default": "filled"}
        definition = one.get(name).expect(200)
        definition["spec"]["versions"][0]["schema"] = schema_of(fields)
        old, given = one.get(made.path("old")).expect(200), {"spec": {fresh: "given"}}
        with paused_server(servers[1]) as asking:
            one.put(name, definition).expect(200)
            asked = [
                asking.submit(two.post, made.path(), made.make(new) | given),
                asking.submit(two.put, made.path("old"), old | given),
            ]
        for answer in (it.result() for it in asked):
            assert answer.status in (200, 201), answer.text
            assert answer.json["spec"].get(fresh) == "given", (answer.text[:300], answer.warnings, answer.status)
            assert answer.warnings == []
        for each in (new, "old"):
            assert one.get(made.path(each)).expect(200)["spec"][fresh] == "given"


def schema_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}


@pytest.mark.parametrize("round_number", range(2))
def test_concurrent_creates_through_two_servers_keep_a_quota(pair: tuple[Client, Client], round_number: int) -> None:
    """Concurrent creates through two servers do not exceed a quota.

    This also holds at the first use of a kind, when each server builds its types.
    """
    one, two = pair
    namespace = f"q{round_number}"
    place = f"{NAMESPACES}/{namespace}"
    one.post(NAMESPACES, {"metadata": {"name": namespace}}).expect(201)
    until(lambda: two.get(f"{place}/serviceaccounts/default").status == 200, "pods have an account")
    two.post(f"{place}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}}).expect(201)
    until(lambda: all(quota_usage(api, place) for api in pair), "the quota is counted")

    def create(number: int) -> int:
        pod = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        return pair[number % 2].post(f"{place}/pods", pod).status

    with ThreadPoolExecutor(12) as writers:
        codes = list(writers.map(create, range(24)))
    assert sorted(codes) == [201] * 5 + [403] * 19
    for api in pair:
        assert len(api.get(f"{place}/pods").expect(200)["items"]) == 5
        assert quota_usage(api, place) == {"pods": "5"}


def test_deletes_and_failed_creates_of_two_servers_keep_a_quota(pair: tuple[Client, Client]) -> None:
    """A recount by one server keeps the other server's charges for objects not yet stored."""
    one, two = pair
    for number in range(4):
        place = f"{NAMESPACES}/q{number}"
        paths = f"{place}/configmaps"
        one.post(NAMESPACES, {"metadata": {"name": f"q{number}"}}).expect(201)
        limit = {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "5"}}}
        two.post(f"{place}/resourcequotas", limit).expect(201)
        until(lambda at=place: all(quota_usage(api, at) for api in pair), "the quota is counted")

        def create_and_delete(at: int, path: str = paths) -> int:
            api, name = pair[at % 2], f"p{at // 2 % 7}"
            if api.post(path, {"metadata": {"name": name}}).status == 201 and at % 3:
                api.delete(f"{path}/{name}").expect(200)
            return len(api.get(path).expect(200)["items"])

        with ThreadPoolExecutor(12) as writers:
            assert max(writers.map(create_and_delete, range(120))) <= 5
        stored = str(len(one.get(paths).expect(200)["items"]))
        wanted = {"count/configmaps": stored}
        until(lambda at=place, wanted=wanted: quota_usage(two, at) == wanted, "the usage is that of the stored objects")


def quota_usage(api: Client, place: str) -> Any:
    """Return the usage that the status of the quota shows."""
    return (api.get(f"{place}/resourcequotas/q").expect(200).get("status") or {}).get("used")
