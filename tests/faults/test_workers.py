"""Several workers behind one port: clients see one consistent server.

This holds also if a worker is killed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, fresh_group, is_true, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.faults.checkers import violations
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.audit import write_policy
from tests.support.processes import (
    SERVE,
    Etcd,
    Server,
    errors,
    free_port,
    running_etcd,
    running_server,
    start_process,
    start_server,
    stop,
)
from tests.support.workers import Pinned, number_of, pids

Pin = Callable[[Server, int], Pinned]
TWO = ["--insecure", "--port=0", "--workers=2"]
EtcdFlags = list[str]
KILLS = 4
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
LARGE = "x" * 900_000  # the other worker receives such an object a little later
STRICT = "?fieldValidation=Strict"


@pytest.fixture
def etcd_flags(own_etcd: Etcd) -> EtcdFlags:
    """Flags for the shared etcd with a new prefix."""
    return [f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/workers-{secrets.token_hex(4)}"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server with two workers, an audit log and RBAC; no test kills it."""
    directory = tmp_path_factory.mktemp("workers")
    policy = write_policy(directory, {"level": "Metadata"})
    flags = [
        *TWO,
        f"--etcd-servers={own_etcd.url}",
        "--etcd-prefix=/both",
        "--authorization-mode=RBAC",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={directory / 'audit.log'}",
    ]
    with running_server(flags, directory) as server:
        yield server


@pytest.fixture(scope="module")
def widgets(both: Server) -> Resource:
    return serve(Client(both.url))


@pytest.fixture
def pin() -> Iterator[Pin]:
    """Creates clients of one worker."""
    made: list[Pinned] = []

    def pinned(server: Server, number: int) -> Pinned:
        made.append(Pinned(server.url, number))
        return made[-1]

    yield pinned
    for client in made:
        client.close()


def is_there(pid: int) -> bool:
    """Report whether a thread of the process runs.

    Until the last thread has ended, the sockets of the process accept connections.
    """
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if task.read_text().rpartition(")")[2].split()[0] not in ("Z", "X"):
                return True
    return False


def test_one_port_reaches_all_workers(both: Server) -> None:
    assert both.process is not None
    assert both.pid == both.process.pid
    assert sorted(pids(both)) == [1, 2]
    assert {number_of(Client(both.url)) for _ in range(40)} == {1, 2}
    assert Client(both.url).get("/readyz").text == "ok"
    assert both.log is not None
    assert (both.log.parent / "pki" / "service-accounts.key").exists(), "one key for all, before anybody needs it"


@pytest.mark.rows("RV-017", "WRI-005")
def test_writes_are_visible_on_all_connections(both: Server, widgets: Resource) -> None:
    api = Client(both.url)
    for number in range(100):
        made = widgets.create(f"w{number}", color="blue")
        revision = made["metadata"]["resourceVersion"]
        path = widgets.path(f"w{number}")
        assert api.get(path).expect(200) == made
        assert made in api.get(widgets.path()).expect(200)["items"]
        assert made in api.get(widgets.path(), resourceVersion=revision).expect(200)["items"]
        assert api.post(widgets.path(), widgets.make(f"w{number}")).status == 409
        patch = [{"op": "test", "path": "/spec/color", "value": "blue"}, {"op": "remove", "path": "/spec/color"}]
        changed = api.patch(path, patch, JSON_PATCH).expect(200)
        with api.watch(widgets.path(), resourceVersion=revision) as watch:
            assert watch.next()["object"] == changed
        assert api.delete(path).status == 200
        assert api.get(path).status == 404


@pytest.mark.rows("CND-004", "SRV-001")
def test_an_established_definition_is_served_by_all_workers(both: Server, pin: Pin) -> None:
    one, two = pin(both, 1), pin(both, 2)
    for here, there in ((one, two), (two, one)):
        for _ in range(3):
            wanted = large(fresh_group())
            group, path = wanted["spec"]["group"], f"{DEFINITIONS}/{wanted['metadata']['name']}"
            here.request("POST", DEFINITIONS, wanted).expect(201)
            wait_established(here, path)
            assert group in {it["name"] for it in there.request("GET", "/apis").expect(200)["groups"]}
            assert f"apis/{group}/v1" in there.request("GET", "/openapi/v3").expect(200)["paths"]
            there.request("POST", f"/apis/{group}/v1/namespaces/default/widgets", thing(group)).expect(201)


@pytest.mark.rows("CRD-037")
def test_definition_edit_applies_at_once_in_every_worker(both: Server, pin: Pin) -> None:
    one, two = pin(both, 1), pin(both, 2)
    wanted = large(fresh_group())
    group, path = wanted["spec"]["group"], f"{DEFINITIONS}/{wanted['metadata']['name']}"
    one.request("POST", DEFINITIONS, wanted).expect(201)
    wait_established(one, path)
    objects = f"/apis/{group}/v1/namespaces/default/widgets"
    for number, (here, there) in enumerate([(one, two), (two, one)] * 2):
        known = here.request("GET", path).expect(200)
        schema = known["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"][f"new{number}"] = {"type": "integer"}
        here.request("PUT", path, known).expect(200)
        made = there.request("POST", objects + STRICT, thing(group, f"a{number}", **{f"new{number}": 1})).expect(201)
        assert made["spec"] == {f"new{number}": 1, "note": "none"}
    here, there = one, two
    here.request("DELETE", path).expect(200)
    until(lambda: here.request("GET", path).status == 404, "the definition is gone", every=0)
    here.request("POST", DEFINITIONS, wanted).expect(201)
    wait_established(here, path)
    there.request("POST", objects, thing(group)).expect(201)


@pytest.mark.rows("AUT-003")
def test_role_binding_applies_at_once_in_every_worker(both: Server, pin: Pin) -> None:
    one, two = pin(both, 1), pin(both, 2)
    for number, (here, there) in enumerate([(one, two), (two, one)] * 5):
        user = {"Impersonate-User": f"somebody-{number}"}
        assert there.request("GET", "/api/v1/configmaps", headers=user).status == 403
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"somebody-{number}"}
        binding = {"metadata": {"name": f"b{number}"}, "roleRef": role, "subjects": [subject]}
        here.request("POST", BINDINGS, binding).expect(201)
        there.request("GET", "/api/v1/configmaps", headers=user).expect(200)
        here.request("DELETE", f"{BINDINGS}/b{number}").expect(200)
        assert there.request("GET", "/api/v1/configmaps", headers=user).status == 403


@pytest.mark.rows("ADM-020")
def test_policy_parameters_apply_at_once_in_every_worker(both: Server, pin: Pin, widgets: Resource) -> None:
    one, two = pin(both, 1), pin(both, 2)
    rule = {"apiGroups": [widgets.group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}
    policy = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "params.data.allowed == 'yes'"}],
    }
    ref = {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}
    binding = {"policyName": "limited", "paramRef": ref, "validationActions": ["Deny"]}
    maps = "/api/v1/namespaces/default/configmaps"
    one.request("POST", maps, {"metadata": {"name": "limits"}, "data": {"allowed": "no"}}).expect(201)
    one.request("POST", POLICIES, {"metadata": {"name": "limited"}, "spec": policy}).expect(201)
    one.request("POST", f"{POLICIES[:-3]}ybindings", {"metadata": {"name": "limited"}, "spec": binding}).expect(201)
    try:
        for number, (here, there) in enumerate([(one, two), (two, one)] * 16):
            allowed = ("yes", "no")[number % 2]
            changed = {"metadata": {"name": "limits"}, "data": {"allowed": allowed, "pad": LARGE}}
            here.request("PUT", f"{maps}/limits", changed).expect(200)
            made = there.request("POST", widgets.path(), widgets.make(f"judged-{number}"))
            assert made.status == (201 if allowed == "yes" else 422), (number, made.text)
    finally:
        one.request("DELETE", f"{POLICIES}/limited").expect(200)


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("number", [1, 2])
def test_every_worker_records_the_last_use_of_a_secret_token(both: Server, pin: Pin, number: int) -> None:
    worker, name = pin(both, number), f"used-{number}"
    place = f"/api/v1/namespaces/default/secrets/{name}"
    worker.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}}).expect(201)
    metadata = {"name": name, "annotations": {"kubernetes.io/service-account.name": name}}
    secret = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
    worker.request("POST", place.rpartition("/")[0], secret).expect(201)
    token = until(lambda: worker.request("GET", place).expect(200).get("data", {}).get("token"), "it has a token")
    review = {"spec": {"token": base64.b64decode(token).decode()}}
    said = worker.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).expect(201)
    assert said["status"]["authenticated"]
    label = "kubernetes.io/legacy-token-last-used"
    until(lambda: label in worker.request("GET", place).expect(200)["metadata"].get("labels", {}), "its use is noted")


def test_each_request_is_audited_once_in_the_shared_log(both: Server) -> None:
    asked = {f"audit-{number}" for number in range(60)}
    for name in asked:
        Client(both.url).get("/api/v1/namespaces", {"Audit-Id": name}).expect(200)
    assert both.log is not None
    events = [json.loads(line) for line in (both.log.parent / "audit.log").read_text().splitlines()]
    ends = [it["auditID"] for it in events if it["stage"] == "ResponseComplete" and it["auditID"] in asked]
    assert sorted(ends) == sorted(asked)


def test_killed_worker_restarts_while_the_other_serves(tmp_path: Path, pin: Pin, etcd_flags: EtcdFlags) -> None:
    with running_server([*TWO, *etcd_flags], tmp_path) as server:
        things, other, before = serve(Client(server.url)), pin(server, 2), pids(server)
        begin = other.request("GET", things.path()).expect(200)["metadata"]["resourceVersion"]
        os.kill(before[1], signal.SIGKILL)
        until(lambda: not is_there(before[1]), "the worker is gone", every=0.001)
        made = other.request("POST", things.path(), thing(things.group, "first")).expect(201)
        for number in range(20):  # with new connections, which the other worker accepts
            Client(server.url).post(things.path(), thing(things.group, f"more-{number}")).expect(201)
        back = pin(server, 1)
        after = pids(server)
        assert (after[2], after[1] != before[1]) == (before[2], True)
        assert back.request("GET", things.path("first")).expect(200) == made
        with Client(server.url).watch(things.path(), resourceVersion=begin) as watch:
            assert watch.next()["object"] == made
        Client(server.url).post(DEFINITIONS, definition(fresh_group())).expect(201)
        assert server.log_tail().count("worker 1 ended with code -9; it is restarted") == 1


@pytest.mark.long
def test_hanging_worker_is_replaced(tmp_path: Path, pin: Pin, etcd_flags: EtcdFlags) -> None:
    with running_server([*TWO, *etcd_flags, "--shutdown-delay-duration=40s"], tmp_path) as server:
        things, before = serve(Client(server.url)), pids(server)
        os.kill(before[2], signal.SIGTERM)  # a worker that stops in order may take longer
        os.kill(before[1], signal.SIGSTOP)
        until(lambda: not is_there(before[1]), "the one that stands still is gone", within=60)
        assert is_there(before[2])
        assert pin(server, 1).request("POST", things.path(), thing(things.group)).status == 201
        assert pids(server)[1] != before[1]
        assert server.log_tail().count("hangs; it is killed") == 1


@pytest.mark.rows("RV-009", "RV-017", "WRI-005", "ETC-005")
def test_killed_workers_lose_no_acknowledged_write(tmp_path: Path) -> None:
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed}")
    chance = random.Random(seed)
    with running_etcd(tmp_path / "etcd") as etcd:
        flags = [*TWO, f"--etcd-servers={etcd.url}"]
        with running_server(flags, tmp_path / "server") as server:
            spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
            things = serve(Client(server.url), schema=schema)
            since = etcd_reader.head(etcd)
            load = Load(server.url, things.path(), f"{things.group}/v1", things.kind, seed)
            load.start(6, 3)
            for victim in chance.sample((1, 2) * (KILLS // 2), KILLS):  # both, so that each watch is cut
                pause(chance.uniform(0.3, 1.0))
                for number in (1, 2):  # until both workers answer again
                    Pinned(server.url, number).close()
                known = pids(server)
                os.kill(known[victim], chance.choice((signal.SIGKILL, signal.SIGTERM)))
                load.history.kills += 1
            until(lambda: not is_there(known[victim]), "the last one that was killed takes no connection")
            load.finish()
            kept = etcd_reader.history(etcd, f"/registry/{things.group}/widgets/", since + 1)
    history = load.history
    found = violations(history, kept)
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20])
    assert len(history.writes) >= 100, f"only {len(history.writes)} acknowledged writes: too few to judge by"
    assert history.resumed, "no watch was resumed: too few to judge by"


def test_signal_ends_workers_and_watches_gracefully(tmp_path: Path, etcd_flags: EtcdFlags) -> None:
    with running_server([*TWO, *etcd_flags], tmp_path) as server, contextlib.ExitStack() as stack:
        things, known = serve(Client(server.url)), pids(server)
        streams = [stack.enter_context(Client(server.url).watch(things.path())) for _ in range(8)]
        assert server.process is not None
        began = time.monotonic()
        assert stop(server.process) == 0
        prompt(time.monotonic() - began, 8)
        assert [stream.read() for stream in streams] == [b""] * 8
    assert not [pid for pid in known.values() if is_there(pid)]
    assert "Traceback" not in server.log_tail()


@pytest.mark.parametrize("workers", ["--workers=1", "--workers=2"])
@pytest.mark.parametrize("path", ["/readyz", "/api/v1/namespaces"])
def test_signal_after_the_first_response_exits_with_0(tmp_path: Path, own_etcd: Etcd, path: str, workers: str) -> None:
    port = free_port()
    prefix = f"--etcd-prefix=/early-{secrets.token_hex(4)}"
    flags = ["--insecure", f"--port={port}", workers, f"--etcd-servers={own_etcd.url}", prefix]
    with (tmp_path / "log").open("wb") as log:
        process = start_process([*SERVE, *flags, f"--data-dir={tmp_path / 'data'}"], log)
        try:
            until(lambda: _answers(port, path), f"{path} is answered with 200", every=0.001)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "log").read_text()
        finally:
            stop(process)
    assert "stopped before" not in (tmp_path / "log").read_text()


def test_a_server_is_ready_when_all_workers_serve(tmp_path: Path, own_etcd: Etcd) -> None:
    port, ready = free_port(), tmp_path / "ready"
    prefix = f"--etcd-prefix=/early-{secrets.token_hex(4)}"
    flags = ["--insecure", f"--port={port}", "--workers=3", f"--etcd-servers={own_etcd.url}", prefix]
    with (tmp_path / "log").open("wb") as log:
        process = start_process([*SERVE, *flags, f"--data-dir={tmp_path}", f"--ready-file={ready}"], log)
        try:
            until(lambda: _answers(port, "/livez"), "the first worker answers", every=0.001)
            early = Client(f"http://127.0.0.1:{port}").get("/readyz/informer-sync")
            others_serve = ready.exists()
            until(lambda: _answers(port, "/readyz"), "the server is ready", every=0.001)
            until(ready.exists, "the ready file is there", within=1)
            numbers = {number_of(Client(f"http://127.0.0.1:{port}")) for _ in range(60)}
            assert numbers == {1, 2, 3}
        finally:
            stop(process)
    if not others_serve:
        assert (early.status, early.text) == (500, "internal server error: not every worker serves yet\n")


def _answers(port: int, path: str) -> bool:
    with contextlib.suppress(OSError):
        return Client(f"http://127.0.0.1:{port}").get(path).status == 200
    return False


def test_killed_supervisor_ends_workers_and_next_start_succeeds(
    tmp_path: Path, pin: Pin, etcd_flags: EtcdFlags
) -> None:
    flags = ["--insecure", "--workers=2", f"--port={free_port()}", *etcd_flags]
    first = start_server(tmp_path, flags)
    assert first.process is not None
    try:
        things, known = serve(Client(first.url)), pids(first)
        made = things.create("kept", color="red")
    finally:
        first.process.kill()
        first.process.wait()
    with running_server(flags, tmp_path) as second:
        assert not [pid for pid in known.values() if is_there(pid)]
        for number in (1, 2):
            assert pin(second, number).request("GET", things.path("kept")).expect(200) == made


def test_errors_of_a_start_are_reported_once_with_an_exit_code(
    tmp_path: Path, both: Server, etcd_flags: EtcdFlags
) -> None:
    port = both.url.rpartition(":")[2]
    calls: list[tuple[list[str], int, str]] = [
        (["--insecure", f"--port={port}", "--workers=2", *etcd_flags], 3, f"cannot listen on 127.0.0.1:{port}: "),
        (["--insecure", f"--port={port}"], 3, f"cannot listen on 127.0.0.1:{port}: "),
        (
            ["--port=0", "--workers=2", "--client-ca-file=/nowhere/ca", *etcd_flags],
            2,
            "--client-ca-file /nowhere/ca: No such",
        ),
        ([*TWO, "--store=sqlite"], 2, "--workers 2 needs --etcd-servers"),
        ([*TWO, "--etcd-servers=http://127.0.0.1:1", "--etcd-wait=0.1"], 4, "etcd at http://127.0.0.1:1 does not"),
    ]
    for number, (flags, code, says) in enumerate(calls):
        with pytest.raises(AssertionError, match=f"the server ended with {code}:") as failed:
            start_server(tmp_path / str(number), flags)
        assert str(failed.value).count(says) == 1


def test_error_after_the_start_is_logged_once(tmp_path: Path, etcd_flags: EtcdFlags) -> None:
    with (tmp_path / "log").open("wb") as log:
        flags = [*TWO, *etcd_flags, f"--data-dir={tmp_path}", "--ready-file=/proc/nowhere/ready"]
        process = start_process([*SERVE, *flags], log)
        try:
            assert process.wait(60) == 2
        finally:
            stop(process)
    assert errors((tmp_path / "log").read_text()) == ["--ready-file /proc/nowhere/ready: No such file or directory"]


def wait_established(worker: Pinned, path: str) -> None:
    until(lambda: is_true(worker.request("GET", path).expect(200), "Established"), f"{path} is established", every=0)


def thing(group: str, name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def large(group: str) -> dict[str, Any]:
    """Return a definition whose compilation takes a worker some time."""
    wanted = definition(group)
    properties = {f"f{number}": {"type": "string", "description": "x" * 100} for number in range(1200)}
    note = {"type": "string", "default": "none"}
    spec = {"type": "object", "properties": {**properties, "note": note}}
    wanted["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}},
    }
    return wanted
