"""The flags with which a test server is started."""

from collections.abc import Sequence

import pytest

from apiext.testing import child
from apiext.testing.server import Server


@pytest.mark.parametrize(
    ("flags", "environment", "in_memory"),
    [
        ([], {}, True),
        (["--authorization-mode=RBAC"], {"APIEXT_PORT": "1"}, True),
        (["--store=sqlite"], {}, False),
        (["--store", "sqlite"], {}, False),
        (["--etcd-servers=http://127.0.0.1:1"], {}, False),
        (["--workers=2"], {}, False),
        (["--config=server.yaml"], {}, False),
        ([], {"APIEXT_STORE": "sqlite"}, False),
        ([], {"APIEXT_ETCD_SERVERS": "http://127.0.0.1:1"}, False),
        ([], {"APIEXT_WORKERS": "2"}, False),
        ([], {"APIEXT_CONFIG": "server.yaml"}, False),
    ],
)
def test_objects_are_in_memory_unless_a_store_is_selected(
    flags: Sequence[str], environment: dict[str, str], in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []

    def start(command: Sequence[str], *_: object) -> None:
        commands.append(command)
        raise OSError("not started")

    monkeypatch.setattr(child, "start", start)
    for name in ("STORE", "ETCD_SERVERS", "WORKERS", "CONFIG"):
        monkeypatch.delenv(f"APIEXT_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="not started"):
        Server(*flags).start()
    assert ("--store=memory" in commands[0]) is in_memory
