"""``apiext conformance``: refused servers, kubeconfigs, exit codes, table and last line."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from apiext.conformance import command, plugin
from apiext.conformance.areas import area_of, areas
from apiext.conformance.command import HERE
from apiext.conformance.plugin import Report
from apiext.conformance.support import http_client
from apiext.conformance.support.http_client import Answer

V1 = "/apis/apiextensions.k8s.io/v1"
SERVED = {"kind": "APIResourceList", "resources": [{"name": "customresourcedefinitions"}]}


@contextlib.contextmanager
def serving(answers: dict[str, tuple[int, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Run a server with fixed responses; yield its URL and received Authorization headers.

    Paths without a fixed response get a 404.
    """
    users: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            users.append(self.headers.get("Authorization", ""))
            status, body = answers.get(self.path, (404, {}))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", users
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def error_text(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must refuse the server; return its error."""
    assert command.run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("apiext conformance: ")
    assert shown.err.count("\n") == 1
    return shown.err


def test_command_requires_server_or_kubeconfig(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--server or --kubeconfig" in error_text(capsys)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "no server"])
def test_server_option_requires_http_or_https_url(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert "expected http://HOST:PORT or https://HOST:PORT" in error_text(capsys, f"--server={url}")


def test_unreachable_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be reached" in error_text(capsys, "--server=http://127.0.0.1:1")


def test_server_without_http_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 ready\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        assert "cannot be reached: 220 ready" in error_text(
            capsys, f"--server=http://127.0.0.1:{listener.getsockname()[1]}"
        )
        thread.join()


def test_unreadable_ca_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "certificates cannot be read from /no/ca.crt: " in error_text(
        capsys, "--server=https://127.0.0.1:1", "--ca-file=/no/ca.crt"
    )


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, {}, "lacks apiextensions.k8s.io/v1"),
        (500, {}, "lacks apiextensions.k8s.io/v1"),
        (200, {"kind": "APIResourceList", "resources": []}, "lacks apiextensions.k8s.io/v1"),
        (200, b"<html>", "apiextensions.k8s.io/v1 (GET /apis/apiextensions.k8s.io/v1 answers 200: <html>)"),
        (200, [], "lacks apiextensions.k8s.io/v1"),
        (401, {}, "select a user"),
        (403, {}, "select a user"),
    ],
)
def test_server_without_apiextensions_v1_is_refused(
    capsys: pytest.CaptureFixture[str], status: int, body: Any, said: str
) -> None:
    with serving({V1: (status, body)}) as (url, _):
        assert said in error_text(capsys, f"--server={url}")


def test_token_is_sent_as_bearer_header() -> None:
    with serving({V1: (200, SERVED)}) as (url, users):
        assert command.why_not({"--server": url, "--server-token": "secret"}) == ""
        assert users == ["Bearer secret"]


def kubeconfig(directory: Path, user: dict[str, Any], **cluster: Any) -> Path:
    path = directory / "kubeconfig"
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "other", "cluster": {}}, {"name": "c", "cluster": {"server": "https://x:1/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def read_access(path: Path, directory: Path, *more: str) -> dict[str, str]:
    asked = command.parser().parse_args([f"--kubeconfig={path}", *more])
    return dict(command.read_access(asked, directory))


def test_kubeconfig_sets_server_and_token(tmp_path: Path) -> None:
    found = read_access(kubeconfig(tmp_path, {"token": "t"}), tmp_path)
    assert (found["--server"], found["--server-token"], found["--server-ca"]) == ("https://x:1", "t", "")
    (tmp_path / "token").write_text("from a file\n")
    found = read_access(kubeconfig(tmp_path, {"tokenFile": "token"}), tmp_path)
    assert found["--server-token"] == "from a file"


def test_options_override_kubeconfig(tmp_path: Path) -> None:
    given = ("--token=mine", "--server=http://y:2", "--ca-file=ca")
    found = read_access(kubeconfig(tmp_path, {"token": "t"}), tmp_path, *given)
    assert (found["--server"], found["--server-token"], found["--server-ca"]) == ("http://y:2", "mine", "ca")


def test_kubeconfig_sets_ca_and_client_certificate_files(tmp_path: Path) -> None:
    inside = {name: base64.b64encode(name.encode()).decode() for name in ("client-certificate-data", "client-key-data")}
    found = read_access(kubeconfig(tmp_path, inside, **{"certificate-authority": "pki/ca.crt"}), tmp_path)
    assert found["--server-ca"] == str(tmp_path / "pki/ca.crt")
    assert Path(found["--server-cert"]).read_text() == "client-certificate-data"
    assert Path(found["--server-key"]).read_text() == "client-key-data"
    assert Path(found["--server-key"]).stat().st_mode & 0o777 == 0o600
    files = {"client-certificate": "a.crt", "client-key": os.path.abspath("/b.key")}
    found = read_access(kubeconfig(tmp_path, files), tmp_path)
    assert (found["--server-cert"], found["--server-key"]) == (str(tmp_path / "a.crt"), "/b.key")


@pytest.mark.parametrize(
    "text",
    ["", "just text", "[1]", "{", "{contexts: [], current-context: x}", "{contexts: [{name: x}], current-context: x}"],
)
def test_invalid_kubeconfig_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    assert "--kubeconfig" in error_text(capsys, f"--kubeconfig={tmp_path / 'config'}")


def test_missing_kubeconfig_and_exec_credentials_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "nowhere" in error_text(capsys, f"--kubeconfig={tmp_path / 'nowhere'}")
    path = kubeconfig(tmp_path, {"exec": {"command": "aws"}})
    assert "exec" in error_text(capsys, f"--kubeconfig={path}")
    assert read_access(path, tmp_path, "--token=t")["--server-token"] == "t"


def report_of_outcome(area: str, outcome: str, when: str = "call", **more: Any) -> Any:
    properties = [("conformance area", area), *more.pop("properties", [])]
    flags = {name: name == outcome for name in ("failed", "skipped", "passed")}
    return SimpleNamespace(user_properties=properties, when=when, longrepr=more.get("longrepr"), **flags)


def test_summary_lists_each_area_and_skip_reasons() -> None:
    report = Report()
    lines: list[str] = []
    report.pytest_runtest_logreport(report_of_outcome("Objects", "passed", "setup"))
    report.pytest_runtest_logreport(
        report_of_outcome("Objects", "passed", properties=[("left out", "a/b, step 'c': why")])
    )
    report.pytest_runtest_logreport(report_of_outcome("Objects", "passed", "teardown"))
    report.pytest_runtest_logreport(report_of_outcome("Objects", "failed"))
    skip = ("file", 1, "Skipped: the server does not serve /metrics")
    report.pytest_runtest_logreport(report_of_outcome("Health and metrics", "skipped", "setup", longrepr=skip))
    config = SimpleNamespace(option=SimpleNamespace(collectonly=False))
    report.pytest_terminal_summary(SimpleNamespace(write_line=lines.append, config=config), 0)
    rows = {line[:32].strip(): line[32:].split() for line in lines if line[:1].isupper()}
    assert list(rows) == [area.name for area in areas()]
    assert (rows["Objects"], rows["Health and metrics"]) == (["1", "1", "0"], ["0", "0", "1"])
    assert "skipped in Health and metrics: 1: the server does not serve /metrics" in lines
    assert "not compared in Objects: a/b, step 'c': why" in lines
    assert dict(report.total) == {"passed": 1, "failed": 1, "skipped": 1}


UNTYPED = {"message": "failed to create typed patch object (a; b): .spec.x: expected string"}


@pytest.mark.parametrize(
    ("compiler", "absent", "status", "said"),
    [
        ("gc", {"/api/v1/namespaces/a"}, 404, "the server does not serve /api/v1"),
        ("gc", {"/apis/apps/v1/deployments"}, 404, "the server does not serve /apis/apps"),
        ("gc", {"/apis/coordination.k8s.io/v1/leases/x"}, 404, ""),
        ("gc", {"/apis/t1.example.com/v1/widgets"}, 404, ""),
        ("gc", {"/apis?watch=true"}, 404, "the server does not serve /apis"),
        ("gc", set(), 500, "500 where the configuration does not fit its types"),
        ("gc", set(), 404, ""),
        ("python", {"/api/v1/namespaces/a"}, 404, ""),
        ("python", set(), 500, ""),
    ],
)
def test_failure_becomes_skip_if_server_lacks_feature(
    monkeypatch: pytest.MonkeyPatch, compiler: str, absent: set[str], status: int, said: str
) -> None:
    monkeypatch.setattr(plugin, "_served", {})
    monkeypatch.setattr(http_client, "absent", absent)
    monkeypatch.setattr(http_client, "answers", deque([Answer(status, {}, json.dumps(UNTYPED).encode())]))
    found = {"/version": (200, {"compiler": compiler}), "/apis/coordination.k8s.io": (200, {})}
    with serving(found) as (url, _):
        config = SimpleNamespace(getoption={"--server": url}.get)
        why = plugin.why_skipped(config)  # type: ignore[arg-type]
    assert (said in why) if said else why == ""


def test_session_fails_if_served_area_ran_no_test() -> None:
    report = Report()
    for area in areas():
        if area.name not in ("Objects", "Admission webhooks"):
            report.pytest_runtest_logreport(report_of_outcome(area.name, "passed"))
    served = {"/api/v1/namespaces"}
    assert report.idle_areas(served.__contains__) == ["Objects"]
    session = SimpleNamespace(
        config=SimpleNamespace(option=SimpleNamespace(keyword="", collectonly=False), getoption=lambda _: ""),
        exitstatus=0,
    )
    with serving({}) as (url, _):
        session.config.getoption = {"--server": url}.get
        report.pytest_sessionfinish(session, 0)  # type: ignore[arg-type]
    assert (session.exitstatus, report.idle) == (1, ["Objects"])


def test_each_test_module_has_an_area() -> None:
    modules = {path.stem for path in HERE.glob("test_*.py")}
    assert {area_of(module).name for module in modules} == {area.name for area in areas()}
    listed = [module for area in areas() for module in area.modules]
    assert sorted(listed) == sorted(modules)
