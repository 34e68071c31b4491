"""Sockets for all addresses: IPv4 and IPv6, or IPv4 only on machines without IPv6."""

import errno
import os
import socket
from pathlib import Path

import pytest

from apiext import launch, logs, supervisor
from apiext.auth.certificates import serving_names
from apiext.http.access_log import AccessLog
from apiext.system import sockets
from apiext.system.sockets import everywhere, is_unspecified
from tests.support.configs import config_of
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving
from tests.unit.http.test_access_log import lines_of, read_all

ALL = pytest.mark.parametrize("address", ["0.0.0.0", "::", "0:0:0:0:0:0:0:0"])


@pytest.fixture
def loopbacks() -> list[str]:
    """Return the loopback addresses of this machine."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return ["127.0.0.1", "::1"]
    except OSError:
        return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("address", "wanted"),
    [("0.0.0.0", True), ("::", True), ("::0", True), ("127.0.0.1", False), ("::1", False), ("localhost", False)],
)
def test_is_unspecified_recognizes_wildcard_addresses(address: str, wanted: bool) -> None:
    assert is_unspecified(address) is wanted


@ALL
@on_uvloop
async def test_clients_of_both_ip_families_are_served_and_logged(address: str, loopbacks: list[str]) -> None:
    outlet, inlet = os.pipe()
    try:
        async with serving(
            Shelf(), bind_address=address, access_log=AccessLog(inlet, logs.formatter("json"))
        ) as server:
            assert server.url == f"http://127.0.0.1:{server.port}"
            for loopback in loopbacks:
                async with connected(server, host=loopback) as client:
                    assert (await client.ask("GET", COLLECTION)).code == 200
    finally:
        os.close(inlet)
    assert [line["source"] for line in lines_of(read_all(outlet))] == loopbacks


@ALL
def test_port_is_reserved_for_both_ip_families(address: str, loopbacks: list[str], tmp_path: Path) -> None:
    config = config_of(tmp_path, port=0, bind_address=address, workers=2)
    with supervisor.reserved(config.listening) as port:
        for loopback in loopbacks:
            family = socket.AF_INET6 if ":" in loopback else socket.AF_INET
            with socket.socket(family) as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind((loopback, port))
        for other in ("0.0.0.0", "::"):
            again = config_of(tmp_path, port=port, bind_address=other, workers=2)
            with pytest.raises(launch.PortInUseError), supervisor.reserved(again.listening):
                pass
        with everywhere(port, reuse_port=True) as one, everywhere(port, reuse_port=True) as two:
            one.listen()
            two.listen()
            assert one.getsockname() == two.getsockname()


@on_uvloop
async def test_port_in_use_for_ipv4_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder, pytest.raises(OSError, match="in use") as error:
        async with serving(Shelf(), bind_address="::", port=holder.getsockname()[1]):
            pass
    assert error.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_wildcard_address_without_ipv6_listens_on_ipv4(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(socket.socket):
        def bind(self, address: object) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(number, os.strerror(number))
            super().bind(address)  # type: ignore[arg-type]

    monkeypatch.setattr(sockets.socket, "socket", Old)
    with everywhere(0) as found:
        assert found.getsockname()[0] == "0.0.0.0"


@ALL
def test_certificate_names_both_loopback_addresses(address: str) -> None:
    assert {"127.0.0.1", "::1"} <= set(serving_names(address))
    assert address not in serving_names(address)
