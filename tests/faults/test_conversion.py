"""Faulty conversion webhooks affect only their own definition.

Webhooks hang, flap, send too much or are unavailable.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.conversion_webhook import (
    BROKEN,
    CronTabs,
    Webhook,
    answer,
    crontab,
    crontab_definition,
    failed,
    fixtures,
    serve_crontabs,
    slowly,
)
from apiext.conformance.support.definitions import establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import prompt, until
from tests.support.processes import Server, running_server, start_server, stop

HELD = ["example.com/hold"]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the tests of this module."""
    with running_server(["--insecure", "--port=0"], tmp_path_factory.mktemp("faulty")) as server:
        yield server


running, hook = fixtures(answer(crontab))


@pytest.fixture
def api(faulty: Server) -> Client:
    """A client of the server."""
    return Client(faulty.url)


def resident(server: Server) -> int:
    """Return the resident memory of the server in bytes."""
    pages = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


class Neighbour:
    """A client that continuously reads objects of another definition.

    It records the duration of each read.
    """

    def __init__(self, api: Client) -> None:
        self._api = api
        self._widgets = serve(api)
        self._widgets.create("a", color="red")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.took: list[float] = []
        self.wrong: list[int] = []
        self.usual = max(self._once() for _ in range(30))

    def _once(self) -> float:
        began = time.monotonic()
        found = self._api.get(self._widgets.path("a"))
        if found.status != 200:
            self.wrong.append(found.status)
        return time.monotonic() - began

    def _read(self) -> None:
        while not self._stop.is_set():
            self.took.append(self._once())
            self._stop.wait(0.05)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self, within: float) -> None:
        """Check that all reads succeeded, and that 98 % took at most ``within`` seconds.

        The limit is longer on a busy machine.
        """
        assert not self.wrong
        took = sorted(self.took)
        assert len(took) > 20
        prompt(took[int(len(took) * 0.98)], max(within, 5 * self.usual), "others")


@pytest.mark.rows("VER-008")
def test_hanging_webhook_does_not_delay_other_requests(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    names = [f"o{number:03}" for number in range(130)]
    for name in names:
        tabs.create("v1beta1", name, hostPort=f"{name}:1")
    hook.answer = hook.hang
    began = time.monotonic()
    with Neighbour(api) as neighbour, ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(lambda name: api.request("GET", tabs.path("v1", name), timeout=60), names))
        took = time.monotonic() - began
        neighbour.check(0.5)
    texts = [found.json["message"].partition(" failed: ")[2] for found in answers]
    assert {found.status for found in answers} == {500}
    late = [text for text in texts if text.endswith('?timeout=30s": context deadline exceeded')]
    refused = [text for text in texts if text == "100 requests are waiting for its responses already"]
    assert len(late) + len(refused) == len(names)
    assert len(late) == 100
    assert took > 29
    prompt(took, 50)

    again = api.get(f"{tabs.path('v1', names[0])}?timeout=1s")
    assert again.status in (500, 504)
    assert tabs.get("v1beta1", names[0])["hostPort"] == "o000:1"
    hook.released.set()
    hook.answer = answer(crontab)
    until(lambda: api.get(tabs.path("v1", names[1])).status == 200, "the webhook is asked again", within=2.5)


@pytest.mark.rows("VER-008")
def test_request_timeout_ends_the_wait_for_a_conversion(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    hook.answer = slowly(3, answer(crontab))
    began = time.monotonic()
    found = api.get(f"{tabs.path('v1', 'a')}?timeout=1s")
    assert (found.status, found.json["reason"]) == (504, "Timeout")
    prompt(time.monotonic() - began, 2)
    assert tabs.get("v1", "a")["host"] == "a"  # the call continued, and a later request gets its result
    assert len(hook.requests()) == 1
    made = {"apiVersion": f"{tabs.group}/v1", "kind": "CronTab", "metadata": {"name": "b"}, "host": "b"}
    for method, path, body in (("POST", "", made), ("PUT", "a", {**tabs.get("v1", "a"), "host": "b"})):
        began = time.monotonic()
        found = api.request(method, f"{tabs.path('v1', path)}?timeout=1s", body)
        assert (found.status, found.json["reason"]) == (504, "Timeout")
        prompt(time.monotonic() - began, 2)
    assert [it["hostPort"] for it in api.get(tabs.path("v1beta1")).expect(200)["items"]] == ["a:1"]


@pytest.mark.rows("VER-008")
@pytest.mark.parametrize("name", ["endless", "100 MB", "reset in the body"])
def test_oversized_conversion_responses_are_rejected(api: Client, faulty: Server, hook: Webhook, name: str) -> None:
    tabs = serve_crontabs(api, hook)
    for number in range(8):
        tabs.create("v1beta1", f"o{number}", hostPort="h:1")
    hook.answer = BROKEN[name]
    before = resident(faulty)
    with Neighbour(api) as neighbour, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: api.get(tabs.path("v1", f"o{number}")), range(8)))
        until(lambda: len(neighbour.took) > 50, "the neighbour has read enough")
        neighbour.check(0.5)
    assert {found.status for found in answers} == {500}
    assert resident(faulty) - before < 120 * 1024 * 1024
    hook.answer = answer(crontab)
    assert len(api.get(tabs.path("v1")).expect(200)["items"]) == 8


@pytest.mark.rows("VER-008", "VER-012")
def test_flapping_webhook_causes_errors_but_no_wrong_objects(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    turn = 0

    def flap(request: dict[str, Any]) -> Any:
        nonlocal turn
        turn += 1
        return (failed("not now") if turn % 3 else answer(crontab))(request)

    hook.answer = flap
    names = [f"o{number}" for number in range(10)]
    for name in names:
        tabs.create("v1beta1", name, hostPort=f"{name}:1")

    def read(name: str) -> int:
        for tries in range(20):
            found = api.get(tabs.path("v1", name))
            if found.status == 200:
                assert found.json["host"] == name
                return tries
            assert found.json["message"].endswith("failed: not now")
        raise AssertionError(f"{name} was never converted")

    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(read, names)) > 0
    assert sum(map(read, names)) == 0  # conversions stay in the cache


@pytest.mark.rows("VER-008", "DEL-003", "NSP-006")
def test_objects_of_an_unavailable_webhook_are_deletable(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    owner = serve(api)
    for name in ("a", "b", "c"):
        made = owner.create(name)
        reference = {
            "apiVersion": f"{owner.group}/v1",
            "kind": owner.kind,
            "name": name,
            "uid": made["metadata"]["uid"],
        }
        held = {"finalizers": HELD} if name == "b" else {}
        tabs.create("v1beta1", name, hostPort="h:1", metadata={"ownerReferences": [reference], **held})
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    versions = api.get(path).expect(200)["spec"]["versions"]
    for one in versions:
        one["storage"] = not one["storage"]
    api.patch(path, {"spec": {"versions": versions}}).expect(200)
    hook.answer = failed("dead")

    for name in ("a", "b"):
        api.delete(owner.path(name)).expect(200)
    until(lambda: api.get(tabs.path("v1beta1", "a")).status == 404, "the garbage is collected")
    until(lambda: tabs.get("v1beta1", "b")["metadata"].get("deletionTimestamp"), "the held one is marked")
    refused = api.delete(tabs.path("v1", "c"))
    assert (refused.status, "failed: dead" in refused.json["message"]) == (500, True)
    api.delete(tabs.path("v1beta1", "c")).expect(200)
    assert [it["metadata"]["name"] for it in api.get(tabs.path("v1beta1")).expect(200)["items"]] == ["b"]


@pytest.mark.rows("NSP-006", "DEL-003", "VER-008")
def test_namespaces_and_definitions_are_deleted_without_webhook(api: Client, hook: Webhook) -> None:
    tabs, namespace = serve_crontabs(api, hook), fresh_group().partition(".")[0]
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    api.post("/api/v1/namespaces", body).expect(201)
    for name in ("a", "b"):
        tabs.create("v1beta1", name, namespace, hostPort="h:1")
    tabs.create("v1beta1", "c", hostPort="h:1")
    hook.answer = failed("dead")
    asked = len(hook.requests())
    api.delete(f"/api/v1/namespaces/{namespace}")
    until(lambda: api.get(f"/api/v1/namespaces/{namespace}").status == 404, "the namespace is gone")
    api.delete(f"{DEFINITIONS}/crontabs.{tabs.group}").expect(200)
    until(lambda: api.get(f"{DEFINITIONS}/crontabs.{tabs.group}").status == 404, "the definition is gone")
    assert len(hook.requests()) == asked


@pytest.mark.rows("VER-012", "HLT-003")
def test_start_calls_no_conversion_webhook(tmp_path: Path, hook: Webhook) -> None:
    with running_server(["--insecure", "--port=0"], tmp_path) as first:
        api, group = Client(first.url), fresh_group()
        establish(api, crontab_definition(group, hook.client_config("/convert")))
        tabs = CronTabs(api, group)
        for number in range(50):
            tabs.create("v1beta1", f"o{number}", hostPort="h:1")
    hook.answer = hook.hang
    again = start_server(tmp_path, ["--insecure", "--port=0"])
    try:
        api = Client(again.url)
        assert hook.requests() == []
        assert len(api.get(tabs.path("v1beta1")).expect(200)["items"]) == 50
        hook.answer = answer(crontab)
        assert len(api.get(tabs.path("v1")).expect(200)["items"]) == 50
    finally:
        assert again.process is not None
        stop(again.process)


@pytest.mark.rows("VER-008")
def test_a_server_stops_while_a_webhook_hangs(tmp_path: Path, hook: Webhook) -> None:
    with running_server(["--insecure", "--port=0"], tmp_path) as server:
        api = Client(server.url)
        tabs = serve_crontabs(api, hook)
        tabs.create("v1beta1", "a", hostPort="a:1")
        hook.released.clear()
        hook.answer = hook.hang
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(lambda: api.get(tabs.path("v1", "a")))
            until(hook.requests, "the webhook is asked")
            began = time.monotonic()
            assert server.process is not None
            assert stop(server.process) == 0
            prompt(time.monotonic() - began, 10)
            assert pending.exception() is not None or pending.result().status >= 500


@pytest.mark.rows("VER-008", "VER-012", "UPD-006")
def test_definition_edits_keep_concurrent_conversions_correct(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    hook.answers = {path: answer(_signed(path)) for path in ("/a", "/b")}
    hook.answer = answer(crontab)
    for number in range(20):
        tabs.create("v1beta1", f"o{number}", hostPort="h:1")
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = api.get(tabs.path("v1"))
            if found.status != 200 or len(found.json["items"]) != 20:
                wrong.append(found.text[:300])

    def write(name: str) -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            found = api.patch(tabs.path("v1", name), {"port": str(turn)})
            if found.status != 200:
                wrong.append(found.text[:300])

    threads = [threading.Thread(target=read), *(threading.Thread(target=write, args=(f"o{n}",)) for n in range(2))]
    for thread in threads:
        thread.start()
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    try:
        for turn in range(20):
            place = {"clientConfig": {**hook.client_config(f"/{'ab'[turn % 2]}")}}
            api.patch(path, {"spec": {"conversion": {"webhook": place}}}).expect(200)
            shown = tabs.get("v1", "o9")
            if shown["host"] != f"h of /{'ab'[turn % 2]}":
                wrong.append(f"turn {turn}: {shown['host']}")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]


def _signed(path: str) -> Any:
    """Return a conversion that adds the name of its webhook to a field.

    It removes the name when it converts back.
    """

    def convert(given: dict[str, Any], api_version: str) -> dict[str, Any]:
        found = crontab(given, api_version)
        if "host" in found:
            found["host"] = f"{found['host'].partition(' of ')[0]} of {path}"
        elif "hostPort" in found:
            host, _, port = found["hostPort"].partition(":")
            found["hostPort"] = f"{host.partition(' of ')[0]}:{port}"
        return found

    return convert


@pytest.mark.rows("VER-014", "VER-002")
def test_migration_during_a_webhook_outage_loses_no_object(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    for number in range(60):
        tabs.create("v1beta1", f"o{number:02}", hostPort=f"h{number}:1")
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    versions = api.get(path).expect(200)["spec"]["versions"]
    for one in versions:
        one["storage"] = not one["storage"]
    api.patch(path, {"spec": {"versions": versions}}).expect(200)
    turn = 0

    def fail_after_20_calls(request: dict[str, Any]) -> Any:
        nonlocal turn
        turn += 1
        return (answer(crontab) if turn < 20 else failed("dead"))(request)

    command = [sys.executable, "-m", "apiext", "migrate", f"crontabs.{tabs.group}", "--server", api.url]
    for broken in (failed("dead"), fail_after_20_calls):
        hook.answer = broken
        ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert ended.returncode != 0
        assert b"failed: dead" in ended.stdout + ended.stderr
        assert api.get(path).expect(200)["status"]["storedVersions"] == ["v1beta1", "v1"]
    hook.answer = answer(crontab)
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    assert api.get(path).expect(200)["status"]["storedVersions"] == ["v1"]
    asked = len(hook.requests())
    listed = api.get(tabs.path("v1")).expect(200)["items"]
    assert [it["host"] for it in listed] == [f"h{number}" for number in range(60)]
    assert len(hook.requests()) == asked
