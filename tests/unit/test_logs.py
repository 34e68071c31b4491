"""The log: all lines have the same format, also those of libraries."""

import json
import logging
import os
import pty
import re
import subprocess
import sys

import pytest

from apiext import logs

TROUBLE = """
import logging, sys, threading, warnings
from apiext import logs
logs.open_log()
logs.warn("a warning")
logs.set_verbosity({verbosity}, quiet={quiet})
logs.note("an expression", rule="a\\nb")
logging.getLogger("apiext.here").info("definition %s", "a", extra=logs.fields(event="established", message="no"))
warnings.warn("old", UserWarning)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
class Finalized:
    def __del__(self): raise ValueError("in a finalizer")
Finalized()
raise RuntimeError("the end")
"""


def run(verbosity: int = 0, quiet: bool = False) -> list[dict[str, object]]:
    code = TROUBLE.format(verbosity=verbosity, quiet=quiet)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_all_lines_are_json() -> None:
    warning, info, python, thread, finalizer, uncaught = lines = run()
    for line in lines:
        assert list(line)[:4] == ["time", "level", "logger", "message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(line["time"]))
    assert (warning["level"], warning["message"]) == ("warning", "a warning")
    assert (info["logger"], info["message"], info["event"]) == ("apiext.here", "definition a", "established")
    assert (python["logger"], python["message"]) == ("py.warnings", "UserWarning: old")
    assert (thread["level"], thread["error"]) == ("error", "ZeroDivisionError: division by zero")
    assert finalizer["error"] == "ValueError: in a finalizer"
    assert (uncaught["level"], uncaught["error"]) == ("critical", "RuntimeError: the end")
    assert str(uncaught["traceback"]).startswith("Traceback (most recent call last)")


def test_verbosity_adds_log_lines_and_quiet_drops_some() -> None:
    assert {"rule": "a\nb"}.items() <= run(verbosity=2)[1].items()
    assert "established" not in [line.get("event") for line in run(quiet=True)]


def test_a_terminal_gets_coloured_text() -> None:
    ours, theirs = pty.openpty()
    code = (
        "import logging; from apiext import logs; logs.open_log(); "
        "logging.getLogger('apiext').error('a fault', extra=logs.fields(code=3)); logs.flush()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, env=environment)
    os.close(theirs)
    told = os.read(ours, 10_000).decode()
    os.close(ours)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} \x1b\[31mERROR  \x1b\[0m a fault code=3\r\n", told)


def test_lines_name_the_worker() -> None:
    record = logging.makeLogRecord({"msg": "a fault", "levelname": "ERROR", "created": 0.25})
    assert logs.formatter("text", 3).format(record) == "1970-01-01T00:00:00.250000Z ERROR   worker 3: a fault"
    assert json.loads(logs.formatter("json", 3).format(record))["worker"] == 3
    request = logs.formatter("json", 3).line(0.25, "info", "apiext.http.access_log", "GET /", {"event": "request"})
    assert json.loads(request)["worker"] == 3


def test_control_characters_of_clients_are_escaped_in_logs() -> None:
    text = "/a\n12:00 ERROR b\x1b[2J\x7f\x9b2J\t\xa0\u00e4"
    record = logging.makeLogRecord({"msg": text, "levelname": "ERROR", "created": 0.25, "fields": {"agent": text}})
    shown = logs.formatter("text").format(record)
    assert shown.partition("   ")[2] == (
        "/a\n  12:00 ERROR b\\u001b[2J\\u007f\\u009b2J\t\xa0\u00e4"
        ' agent="/a\\n12:00 ERROR b\\u001b[2J\\u007f\\u009b2J\\t\xa0\u00e4"'
    )
    line = logs.formatter("json").format(record)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
    assert (json.loads(line)["message"], json.loads(line)["agent"]) == (text, text)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    return now


def test_rate_limited_log_counts_left_out_lines(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    seldom, told = logs.RateLimited(1.0), []
    with caplog.at_level(logging.INFO):
        for clock[0] in (0.0, 0.1, 0.9, 1.0, 2.5):
            seldom.log(logging.INFO, logging.getLogger("apiext"), "slow", code=200)
    told = [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records]
    assert told == [("slow", {"code": 200}), ("slow", {"code": 200, "leftOut": 2}), ("slow", {"code": 200})]


def test_age_is_measured_from_process_start() -> None:
    code = "import time; time.sleep(0.3); from apiext.launch import age; print(age())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.3
