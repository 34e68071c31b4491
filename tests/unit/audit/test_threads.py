"""The threads of the audit log."""

from __future__ import annotations

import threading

import pytest

from apiext.audit.threads import Background

pytestmark = pytest.mark.rows("AUD-001")


def test_error_in_background_work_is_logged_and_work_continues(caplog: pytest.LogCaptureFixture) -> None:
    background, begun, again = Background(), threading.Event(), threading.Event()

    def broken() -> None:
        begun.set()
        raise OverflowError("too much")

    background(broken)
    assert begun.wait(30)
    background(again.set)
    assert again.wait(30)
    told = [(record.levelname, record.exc_info and str(record.exc_info[1])) for record in caplog.records]
    assert told == [("ERROR", "too much")]
