"""Destinations of audit events, such as files and webhooks, and levels of events.

One webhook does not respond.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from apiext.conformance.support.admission_webhook import page, running_webhook
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import MERGE
from apiext.conformance.support.waiting import until
from tests.support.audit import Audited, write_policy
from tests.support.processes import SERVE, Etcd, errors, running_server, start_process, stop

pytestmark = [
    pytest.mark.rows("AUD-001"),
    pytest.mark.differs("the log is a file of a server that the test starts"),
]

MAPS = "/api/v1/namespaces/default/configmaps"
EVERYTHING = [{"level": "RequestResponse"}]


class Start(Protocol):
    """Starts servers with flags; the servers of one test share a store."""

    def __call__(self, *flags: str, rules: list[dict[str, Any]] = EVERYTHING, log: str = "", **policy: Any) -> Audited:
        """Start a server, wait until it is ready, and return it with its log."""


@pytest.fixture
def start(tmp_path: Path, own_etcd: Etcd) -> Iterator[Start]:
    with ExitStack() as stack:

        def run(*flags: str, rules: list[dict[str, Any]] = EVERYTHING, log: str = "", **policy: Any) -> Audited:
            where = log or str(tmp_path / "audit.log")
            common = [
                "--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}",
                f"--audit-policy-file={write_policy(tmp_path, *rules, **policy)}", f"--audit-log-path={where}",
            ]  # fmt: skip
            server = stack.enter_context(running_server([*common, *flags], tmp_path / "server"))
            return Audited(server, Path(where))

        yield run


def config_map(name: str, size: int = 1) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x" * size}}


def metric_sum(audited: Audited, name: str) -> float:
    """Return the sum of the values of a metric in /metrics, 0 if there are none."""
    lines = audited.api.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


# --- contents of events ---


@pytest.mark.rows("AUD-002")
def test_levels_stages_and_managed_fields(start: Start) -> None:
    rules = [
        {"level": "None", "nonResourceURLs": ["/version", "/healthz*"]},
        {"level": "Metadata", "resources": [{"group": "", "resources": ["secrets", "configmaps"]}]},
        {"level": "Request", "verbs": ["create"], "omitManagedFields": False},
        {"level": "RequestResponse", "omitStages": ["ResponseStarted"]},
    ]
    audited = start(rules=rules, omitStages=["RequestReceived"], omitManagedFields=True)
    assert audited.ask("GET", "/version")[1] == {}
    secret = audited.ask(
        "POST", MAPS.replace("configmaps", "secrets"), config_map("s") | {"kind": "Secret", "data": {}}
    )
    assert list(secret[1]) == ["ResponseComplete"]
    metadata = secret[1]["ResponseComplete"]
    assert (metadata["level"], metadata["objectRef"]["name"]) == ("Metadata", "s")
    assert metadata["responseStatus"]["code"] == 201
    assert not {"requestObject", "responseObject"} & metadata.keys()
    missing = audited.last("GET", f"{MAPS}/missing")
    assert missing["responseStatus"]["reason"] == "NotFound", "a Status is told at every level"
    widgets = serve(audited.api)
    asked = audited.last("POST", widgets.path(), widgets.make("a"))
    assert (asked["level"], "requestObject" in asked, "responseObject" in asked) == ("Request", True, False)
    shown = audited.last("GET", widgets.path("a"))
    assert shown["responseObject"]["metadata"]["name"] == "a"
    assert "managedFields" not in shown["responseObject"]["metadata"]
    for item in audited.last("GET", widgets.path())["responseObject"]["items"]:
        assert "managedFields" not in item["metadata"]
    for path in (widgets.path(), widgets.path("a")):
        table = "application/json;as=Table;v=v1;g=meta.k8s.io"
        (row,) = audited.last("GET", path, Accept=table)["responseObject"]["rows"]
        assert row["object"]["metadata"]["name"] == "a"
        assert "managedFields" not in row["object"]["metadata"]
    sent = audited.api.get(widgets.path("a")).json
    put = audited.last("PUT", widgets.path("a"), sent)
    assert "managedFields" in sent["metadata"]
    assert "managedFields" not in put["requestObject"]["metadata"]
    _, watched = audited.ask("GET", widgets.path() + "?watch=1&timeoutSeconds=1")
    assert "ResponseStarted" not in watched


def test_unauthenticated_request_logs_only_response_started(tmp_path: Path, own_etcd: Etcd) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('sesame,alice,1001,"devs"\n')
    rules = [{"level": "Metadata", "users": ["alice"]}, {"level": "RequestResponse"}]
    flags = [
        "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}",
        f"--token-auth-file={tokens}", f"--audit-policy-file={write_policy(tmp_path, *rules)}",
        f"--audit-log-path={tmp_path / 'audit.log'}", "--authorization-mode=AlwaysDeny",
    ]  # fmt: skip
    with running_server(flags, tmp_path / "server") as server:
        audited = Audited(server, tmp_path / "audit.log", trusting=True)
        _, events = audited.ask("GET", MAPS, Authorization="Bearer wrong")
        assert list(events) == ["ResponseStarted"]
        refused = events["ResponseStarted"]
        assert refused["user"] == {}
        assert refused["objectRef"]["resource"] == "configmaps"
        assert refused["responseStatus"] == {
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        }
        assert refused["responseObject"]["code"] == 401
        assert "annotations" not in refused
        forbidden = audited.last("GET", MAPS, Authorization="Bearer sesame")
        assert forbidden["level"] == "Metadata"
        assert forbidden["user"] == {"username": "alice", "uid": "1001", "groups": ["devs", "system:authenticated"]}
        assert forbidden["annotations"]["authorization.k8s.io/decision"] == "forbid"
        assert forbidden["responseStatus"]["code"] == 403


# --- files ---


def test_log_is_rotated_compressed_and_pruned(start: Start, tmp_path: Path) -> None:
    audited = start("--audit-log-maxsize=1", "--audit-log-maxbackup=2", "--audit-log-compress")
    audited.api.post(MAPS, config_map("rotated", 700_000)).expect(201)
    for _ in range(6):
        audited.api.get(f"{MAPS}/rotated").expect(200)

    def find_compressed_logs() -> list[Path]:
        found = sorted(tmp_path.glob("audit-*"))
        return found if len(found) == 2 and all(path.suffix == ".gz" for path in found) else []

    old = until(find_compressed_logs, "two compressed logs are left")
    assert audited.log.stat().st_size <= 1024 * 1024
    for path in old:
        lines = gzip.decompress(path.read_bytes()).splitlines()
        assert lines
        assert all(json.loads(line)["kind"] == "Event" for line in lines)


def test_restart_appends_to_log_with_mode_0600(start: Start, tmp_path: Path) -> None:
    for number in range(2):
        audited = start()
        audited.api.get("/version", {"Audit-Id": f"run-{number}"}).expect(200)
        assert audited.server.process is not None
        stop(audited.server.process)
    assert audited.events("run-0")
    assert audited.events("run-1")
    assert stat.S_IMODE(audited.log.stat().st_mode) == 0o600


def test_legacy_format_is_logged_to_standard_output(start: Start) -> None:
    audited = start("--audit-log-format=legacy", log="-")
    audited.api.get("/version", {"Audit-Id": "printed"}).expect(200)
    assert audited.server.log is not None
    text = audited.server.log.read_text()
    assert 'AUDIT: id="printed" stage="RequestReceived" ip="127.0.0.1" method="get" user="admin"' in text
    assert 'stage="ResponseComplete"' in text


# --- webhooks that fail ---


def test_a_full_disk_does_not_stop_the_server(start: Start) -> None:
    audited = start(log="/dev/full")
    audited.api.post(MAPS, config_map("full")).expect(201)
    audited.api.patch(f"{MAPS}/full", {"data": {"a": "2"}}, MERGE).expect(200)
    assert metric_sum(audited, 'apiserver_audit_error_total{plugin="log"}') >= 4
    assert metric_sum(audited, "apiserver_audit_requests_rejected_total") == 0


def test_full_disk_fails_requests_in_blocking_strict_mode(start: Start) -> None:
    rules = [{"level": "None", "nonResourceURLs": ["*"]}, {"level": "Metadata"}]
    audited = start("--audit-log-mode=blocking-strict", log="/dev/full", rules=rules)
    refused = audited.api.post(MAPS, config_map("refused"))
    assert refused.status == 500
    assert refused.json["message"] == "Internal error occurred: failed to store audit event"
    assert metric_sum(audited, "apiserver_audit_requests_rejected_total") == 1
    assert audited.api.get("/readyz").raw.decode().startswith("ok")


def test_blocked_log_does_not_block_requests_in_batch_mode(start: Start, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        audited = start("--audit-log-mode=batch", "--audit-log-batch-buffer-size=5", log=str(pipe))
        audited.api.post(MAPS, config_map("piped", 100_000)).expect(201)  # more than the buffer of a pipe
        for _ in range(10):
            audited.api.get("/version").expect(200)
        assert metric_sum(audited, 'apiserver_audit_error_total{plugin="buffered"}') >= 10
        assert audited.server.process is not None
        audited.server.process.terminate()
        assert audited.server.process.wait(15) == 0, "nor does it hold the end"
    finally:
        os.close(reader)


# --- webhooks ---


def kubeconfig(directory: Path, url: str, **cluster: Any) -> str:
    path = directory / "audit-webhook.yaml"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": {"token": "sesame"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_webhook_receives_event_lists(start: Start, tmp_path: Path) -> None:
    with running_webhook(tmp_path) as hook:
        hook.answer = lambda _: page(200, b"")
        config = kubeconfig(tmp_path, hook.url("/audit"), **{"certificate-authority-data": hook.authority.bundle})
        audited = start(f"--audit-webhook-config-file={config}", "--audit-webhook-batch-max-wait=100ms")
        _, events = audited.ask("POST", MAPS, config_map("hooked"))

        def received_events() -> list[dict[str, Any]]:
            found = [event for review in hook.reviews for event in review["items"]]
            return [event for event in found if event["auditID"] == events["RequestReceived"]["auditID"]]

        until(lambda: len(received_events()) == 2, "both events arrive")
        said = [
            {name: event[name] for name in event if name not in ("kind", "apiVersion")} for event in events.values()
        ]
        assert received_events() == said, "what the log says"
        assert {(review["kind"], review["apiVersion"]) for review in hook.reviews} == {("EventList", "audit.k8s.io/v1")}
        assert hook.headers[0]["authorization"] == "Bearer sesame"


def test_failing_webhook_is_counted_and_blocks_no_request(start: Start, tmp_path: Path) -> None:
    with running_webhook(tmp_path, plain=True) as hook:
        hook.answer = lambda _: page(503, b"")
        config = kubeconfig(tmp_path, hook.url("/audit").replace("https:", "http:"))
        audited = start(
            f"--audit-webhook-config-file={config}",
            "--audit-webhook-mode=blocking",
            "--audit-webhook-initial-backoff=1ms",
        )
        audited.api.get("/version").expect(200)
        assert metric_sum(audited, 'apiserver_audit_error_total{plugin="webhook"}') >= 2
        assert len(hook.reviews) >= 10, "each was tried five times"


# --- flags ---


@pytest.mark.parametrize(
    ("policy", "flags", "then"),
    [
        (None, [], "loading audit policy file: failed to read file path"),
        ("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: []}", [], "loaded illegal policy with 0 rules: from file"),
        ("", ["--audit-log-mode=later"], "invalid audit log mode later, allowed modes are"),
        ("", ["--audit-log-format=xml"], 'invalid audit log format xml, allowed formats are "legacy,json"'),
        ("", ["--audit-log-maxsize=-1"], "--audit-log-maxsize -1 can't be a negative number"),
        ("", ["--audit-log-version=audit.k8s.io/v1beta1"], 'allowed versions are ["audit.k8s.io/v1"]'),
        ("", ["--audit-log-mode=batch", "--audit-log-batch-buffer-size=0"], "buffer size 0, must be a positive number"),
        ("", ["--audit-log-truncate-max-event-size=0"], "max event size 0, must be a positive number"),
    ],
)
def test_invalid_flags_are_refused_at_the_start(
    tmp_path: Path, policy: str | None, flags: list[str], then: str
) -> None:
    path = tmp_path / "policy.yaml"
    if policy is not None:
        path.write_text(policy)
    command = [
        *SERVE, "--insecure", "--port=0", f"--data-dir={tmp_path}", f"--audit-policy-file={path}",
        f"--audit-log-path={tmp_path / 'audit.log'}", *flags,
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        assert start_process(command, log).wait(30) == 2
    assert then in errors((tmp_path / "log").read_text())[-1]


def test_server_without_audit_policy_writes_no_log(tmp_path: Path) -> None:
    with running_server(
        ["--insecure", "--port=0", f"--audit-log-path={tmp_path / 'audit.log'}"], tmp_path / "s"
    ) as one:
        Audited(one, tmp_path / "audit.log").api.get("/version").expect(200)
        assert "the server audits no request without --audit-policy-file" in one.log_tail()
    assert not (tmp_path / "audit.log").exists()
