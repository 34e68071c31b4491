"""Messages of ``apiext migrate`` that cannot reach its server."""

from __future__ import annotations

import pytest

from apiext.tools import migrate


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://h:abc", "http://h:abc is not the URL of a server: Port could not be cast to integer value as 'abc'"),
        ("http://h:65536", "http://h:65536 is not the URL of a server: Port out of range 0-65535"),
        ("http://[::1", "http://[::1 is not the URL of a server: Invalid IPv6 URL"),
        ("http://:80", "http://:80 is not the URL of a server: it has no host"),
        ("http://a..b:1", "http://a..b:1 does not respond: "),
        ("http://127.0.0.1:1/ä", "http://127.0.0.1:1/ä does not respond: "),
        ("http://a b:1", "http://a b:1 does not respond: "),
    ],
)
def test_unreachable_server_is_one_line_error(url: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate.run(["--server", url, "--all"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"apiext: {says}")
