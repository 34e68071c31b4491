"""File descriptors limit the connections of a process; further connections get a response."""

from __future__ import annotations

import pytest

from apiext.http import connection_limits
from apiext.http.connection_limits import Descriptors, reserve
from apiext.telemetry import Slot


@pytest.mark.parametrize(("limit", "kept"), [(64, 32), (300, 37), (1_024, 128), (1_048_576, 1_024)])
def test_descriptors_are_reserved_for_etcd_and_files(limit: int, kept: int) -> None:
    assert reserve(limit) == kept


def test_connections_are_refused_near_the_descriptor_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, looks, opened = 1_000.0, 0, 20
    refused = Slot()

    def count() -> int:
        nonlocal looks
        looks += 1
        return opened

    monkeypatch.setattr(connection_limits, "monotonic", lambda: now)
    found = Descriptors(100, refused, count)
    assert [found.take() for _ in range(48)] == [True] * 48  # 100 - 32 - 20
    assert looks == 1
    opened = 68
    now += connection_limits.FILES_COUNT_EVERY
    assert [found.take() for _ in range(10)] == [False] * 10
    assert looks == 2, "one look tells for a while"
    assert refused.value == 10
    assert caplog.messages == [
        "new connections are refused, most of 100 file descriptors are open (1 refused since the last such line): "
        "raise the limit of the process (ulimit -n, LimitNOFILE of systemd)"
    ]
    now += connection_limits.FILES_LOG_EVERY - 1
    assert not found.take()
    now += 1
    assert not found.take()
    assert [message.split("(")[1].split(" ")[0] for message in caplog.messages] == ["1", "11"]
    opened = 60  # eight were closed
    now += connection_limits.FILES_COUNT_EVERY
    assert [found.take() for _ in range(9)] == [True] * 8 + [False]
