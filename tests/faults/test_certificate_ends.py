"""The wall clock of a running server jumps by months.

The server renews its certificates in time, or reports their end.
"""

from __future__ import annotations

import base64
import http.client
import re
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509 import verification

from apiext.conformance.support import tls
from apiext.conformance.support.waiting import until
from tests.support.client_certificates import CN, ORG, ClientAuthority, dialling
from tests.support.faked_time import WallClock, needs_faketime
from tests.support.processes import Etcd, Server, running_etcd, running_server

pytestmark = needs_faketime
DAYS, SOON = timedelta(days=1), 20.0


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    """The wall clock of the server."""
    return WallClock(tmp_path / "wall-clock")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd with the machine's clock."""
    with running_etcd(tmp_path / "etcd") as started:
        yield started


def serving_certificate(server: Server) -> str:
    """Return the current serving certificate of a server, without verification.

    It is not verified because the server's clock differs.
    """
    return ssl.get_server_certificate(("127.0.0.1", int(server.url.rpartition(":")[2])))


def chain(server: Server) -> list[x509.Certificate]:
    """Return the certificates in the server's file with its certificate chain."""
    file = Path(server.ready["kubeconfig"]).parent / "pki" / "serving.crt"
    return x509.load_pem_x509_certificates(file.read_bytes())


def trusted_authorities(server: Server) -> bytes:
    """Return the authorities in the administrator's kubeconfig."""
    written = yaml.safe_load(Path(server.ready["kubeconfig"]).read_text())
    return base64.b64decode(written["clusters"][0]["cluster"]["certificate-authority-data"])


def verify(trusted: bytes, leaf: str, wall: WallClock, others: list[x509.Certificate] | None = None) -> None:
    """Verify a certificate as a client that trusts these authorities and has the server's clock."""
    store = verification.Store(x509.load_pem_x509_certificates(trusted))
    builder = verification.PolicyBuilder().store(store).time(wall.now.replace(tzinfo=None))
    verifier = builder.build_server_verifier(x509.DNSName("localhost"))
    verifier.verify(x509.load_pem_x509_certificate(leaf.encode()), others or [])


def get(server: Server, path: str) -> tuple[int, str]:
    """Send a GET as the administrator; return the status code and the body."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    written = yaml.safe_load(Path(server.ready["kubeconfig"]).read_text())
    connection = http.client.HTTPSConnection(server.url.partition("://")[2], context=context, timeout=20)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {written['users'][0]['user']['token']}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def end_in_metrics(server: Server, which: str) -> float:
    """Return the expiration of a certificate in /metrics."""
    _, text = get(server, "/metrics")
    name = "apiext_certificate_expiration_timestamp_seconds"
    found = re.search(rf'^{name}{{certificate="{which}"}} (\d+)$', text, re.M)
    assert found is not None, text
    return float(found[1])


def flags(etcd: Etcd) -> list[str]:
    """Return the flags of a secure server."""
    return ["--port=0", f"--etcd-servers={etcd.url}"]


@pytest.mark.parametrize("more", [[], ["--workers=2"]], ids=["alone", "workers"])
def test_own_certificates_are_renewed_while_serving(
    etcd: Etcd, tmp_path: Path, wall: WallClock, more: list[str]
) -> None:
    with running_server([*flags(etcd), *more], tmp_path / "server", env=wall.environment) as server:
        first, authority = serving_certificate(server), trusted_authorities(server)
        verify(authority, first, wall)
        wall.set(340 * DAYS)
        until(
            lambda: all(serving_certificate(server) != first for _ in range(12)),
            "each worker shows another one",
            within=SOON,
        )
        second = serving_certificate(server)
        verify(authority, second, wall)
        until(
            lambda: end_in_metrics(server, "serving") > (wall.now + 300 * DAYS).timestamp(), "the metric", within=SOON
        )
        assert trusted_authorities(server) == authority
        assert "authority" not in server.log_tail()

        wall.set(3600 * DAYS)  # the authority is valid for 50 days, so its certificates are valid for at most 50 days
        until(lambda: "the authority in" in server.log_tail(), "one line tells of its end", within=SOON)
        assert server.log_tail().count("the server replaces it 30 days before") == 1
        assert end_in_metrics(server, "authority") == pytest.approx((wall.now + 50 * DAYS).timestamp(), abs=3 * 86400)
        third = serving_certificate(server)
        verify(authority, third, wall)

        wall.set(3625 * DAYS)
        until(lambda: all(serving_certificate(server) != third for _ in range(12)), "it is replaced", within=SOON)
        until(lambda: trusted_authorities(server) != authority, "and in the kubeconfig", within=SOON)
        assert trusted_authorities(server).endswith(authority)
        for trusted in (authority, trusted_authorities(server)):
            verify(trusted, serving_certificate(server), wall, chain(server)[1:])
        assert get(server, "/livez?verbose")[0] == 200
        assert "Traceback" not in server.log_tail()


def test_expiry_of_a_provided_certificate_is_reported(etcd: Etcd, tmp_path: Path, wall: WallClock) -> None:
    ca = tls.authority()
    given = [tls.server_file(ca, tmp_path / "given") for _ in range(2)]
    certificate = tmp_path / "given.pem"
    certificate.write_bytes(given[0].read_bytes())
    more = [f"--tls-cert-file={certificate}", f"--tls-private-key-file={certificate}"]
    with running_server([*flags(etcd), *more], tmp_path / "server", env=wall.environment) as server:
        until(lambda: "in 4 days" in server.log_tail(), "its end is near", within=SOON)
        assert end_in_metrics(server, "serving") == pytest.approx((wall.now + 5 * DAYS).timestamp(), abs=3600)
        assert get(server, "/livez") == (200, "ok")
        before = trusted_authorities(server)
        wall.set(5.5 * DAYS)
        until(lambda: get(server, "/livez")[0] == 500, "/livez fails", within=SOON)
        assert "[-]serving-certificate failed: reason withheld" in get(server, "/readyz?verbose")[1]
        assert get(server, "/livez/serving-certificate")[1].startswith("internal server error: the serving certificate")
        until(lambda: "has expired at" in server.log_tail(), "it is logged", within=SOON)
        assert server.log_tail().count("a new file is loaded without a restart") == 2, "one line a day"
        wall.set(timedelta())
        certificate.write_bytes(given[1].read_bytes())
        until(lambda: trusted_authorities(server) != before, "the kubeconfig is written anew", within=SOON)
        assert trusted_authorities(server).decode().split() == serving_certificate(server).split()
        until(lambda: get(server, "/livez") == (200, "ok"), "/livez holds again", within=SOON)
        certificate.write_bytes(given[0].read_bytes() + ca.pem)
        until(lambda: trusted_authorities(server) == ca.pem, "it pins the authority of a chain", within=SOON)


@pytest.mark.parametrize("ahead", [timedelta(hours=2), 3650 * DAYS], ids=["hours", "years"])
def test_certificates_that_are_not_yet_valid_are_renewed(
    etcd: Etcd, tmp_path: Path, wall: WallClock, ahead: timedelta
) -> None:
    wall.set(ahead)
    with running_server(flags(etcd), tmp_path / "server", env=wall.environment) as server:
        verify(trusted_authorities(server), serving_certificate(server), wall)
    wall.set(timedelta())
    with running_server(flags(etcd), tmp_path / "server", env=wall.environment) as server:
        verify(trusted_authorities(server), serving_certificate(server), wall)
        assert "is not valid before" in server.log_tail()
        ssl.get_server_certificate(("127.0.0.1", int(server.url.rpartition(":")[2])))


def test_client_certificate_expires_on_an_open_connection(etcd: Etcd, tmp_path: Path, wall: WallClock) -> None:
    """The clock jumps as after a sleep of the machine, during which timers do not run."""
    ca = ClientAuthority(tmp_path, "clients")
    more = [*flags(etcd), f"--client-ca-file={ca.file}"]
    with running_server(more, tmp_path / "server", env=wall.environment) as server:
        connection = http.client.HTTPSConnection(
            server.url.partition("://")[2], context=dialling(ca.issue(((CN, "a"), (ORG, "system:masters")))), timeout=20
        )

        def code() -> int:
            connection.request("GET", "/api/v1/namespaces/default")
            answer = connection.getresponse()
            answer.read()
            return answer.status

        assert code() == 200
        line = connection.sock
        wall.set(3 * DAYS)
        until(lambda: code() == 401, "it counts no more", within=SOON)
        wall.set(timedelta())
        until(lambda: code() == 200, "it counts again", within=SOON)
        assert connection.sock is line, "it is the same connection"
        connection.close()
