"""The command ``apiext conformance``, run as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.processes import ROOT, Server

FEW = (
    "test_a_watch_over_websocket or test_subprotocols or (test_scenario and cr-lifecycle)"
    " or test_paths_of_the_aggregated"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "apiext", "conformance", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_some_tests_against_a_server_with_default_flags(server: Server, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    done = run(f"--server={server.url}", "-k", FEW, f"--junit={junit}")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert last[1::2] == ["passed,", "failed,", "skipped"]
    assert (int(last[0]) > 10, last[2], last[4]) == (True, "0", "0")
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert suite.attrib["tests"] == last[0]
    assert "not compared in Recorded answers: cr-lifecycle/delete options" in done.stdout
    assert {it["metadata"]["name"] for it in server.client().get("/api/v1/namespaces").expect(200)["items"]} >= {
        "default"
    }


@pytest.mark.slow
def test_selection_without_tests_fails(server: Server) -> None:
    done = run(f"--server={server.url}", "-k", "no_test_has_this_name")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 passed, 0 failed, 0 skipped")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--list"], ["--list", "-k", "websocket"]])
def test_the_list_needs_no_server(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert "test_a_watch_over_websocket_is_one_text_frame_per_event" in done.stdout
    assert " passed" not in done.stdout
