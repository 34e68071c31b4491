"""The server's certificate authority, its certificates, and the kubeconfig."""

import ssl
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from apiext.auth import certificates, kubeconfig
from apiext.auth.authentication import user_of_certificate
from apiext.auth.proxies import Proxies
from apiext.auth.serving import ServingCertificate
from apiext.config import ProxyConfig
from apiext.system import files

NAMES = certificates.serving_names("127.0.0.1", ["api.example.com"])


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def load(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_serving_certificate_names() -> None:
    assert {"localhost", "127.0.0.1", "::1", "kubernetes.default.svc", "api.example.com"} <= set(NAMES)
    assert "0.0.0.0" not in certificates.serving_names("0.0.0.0")


def test_certificates_are_reused_and_files_are_private(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    authority = certificates.load_authority(pki)
    serving = certificates.load_serving(pki, authority, NAMES)
    assert mode(pki) == 0o700
    assert {mode(file) for file in pki.iterdir()} == {0o600}
    again = certificates.load_authority(pki)
    assert again.pem == authority.pem
    first = serving.certificate.read_bytes()
    assert certificates.load_serving(pki, again, NAMES).certificate.read_bytes() == first
    assert certificates.load_serving(pki, again, [*NAMES, "new.example.com"]).certificate.read_bytes() != first


def test_renewal_of_serving_certificate_keeps_the_authority(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    before = certificates.load_serving(tmp_path, authority, NAMES).certificate.read_bytes()

    def later(days: int) -> bytes:
        moment = certificates.now() + timedelta(days=days)
        known = certificates.load_authority(tmp_path, lambda: moment)
        assert known.pem == authority.pem
        return certificates.load_serving(tmp_path, known, NAMES, lambda: moment).certificate.read_bytes()

    assert later(300) == before
    assert later(340) != before


def test_expired_authority_is_replaced(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    before = certificates.load_serving(tmp_path, authority, NAMES).certificate.read_bytes()
    moment = certificates.now() + timedelta(days=3651)
    fresh = certificates.load_authority(tmp_path, lambda: moment)
    assert authority.pem not in fresh.pem
    assert certificates.load_serving(tmp_path, fresh, NAMES, lambda: moment).certificate.read_bytes() != before


def verify(serving: certificates.Serving, trusted: bytes, at: datetime) -> None:
    """Verify the serving certificate at this time, like a client that trusts these authorities."""
    leaf, *others = x509.load_pem_x509_certificates(serving.certificate.read_bytes())
    store = verification.Store(x509.load_pem_x509_certificates(trusted))
    builder = verification.PolicyBuilder().store(store).time(at.replace(tzinfo=None))
    builder.build_server_verifier(x509.DNSName("api.example.com")).verify(leaf, others)


def test_expiring_authority_is_replaced_with_an_overlap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients can verify the server with the old, the new or both authorities.

    This holds until the old authority expires.
    """
    began = certificates.now()
    old = certificates.load_authority(tmp_path)
    earlier, at = began + timedelta(days=3619), began + timedelta(days=3621)
    assert certificates.load_authority(tmp_path, lambda: earlier).pem == old.pem
    assert not caplog.records
    new = certificates.load_authority(tmp_path, lambda: at)
    assert "a new authority replaces it" in caplog.text
    own = new.certificate.public_bytes(Encoding.PEM)
    assert new.pem == own + old.pem == (tmp_path / "ca.crt").read_bytes()
    serving = certificates.load_serving(tmp_path, new, NAMES, lambda: at)
    assert serving.ca == new.pem
    for days in (0, 28):
        for trusted in (old.pem, own, new.pem):
            verify(serving, trusted, at + timedelta(days=days))
    kept = certificates.load_authority(tmp_path, lambda: at + timedelta(days=28))
    assert kept.pem == new.pem
    assert load(serving.certificate).not_valid_after_utc > at + timedelta(days=300)
    later = at + timedelta(days=30)
    with pytest.raises(verification.VerificationError):
        verify(serving, old.pem, later)
    verify(serving, new.pem, later)
    assert certificates.load_authority(tmp_path, lambda: later).pem == own, "it has ended"


def test_mismatched_authority_key_and_certificate_are_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files after a server was killed between the two writes."""
    old = certificates.load_authority(tmp_path / "a")
    certificates.load_authority(tmp_path / "b")
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    new = certificates.load_authority(tmp_path / "a")
    assert "do not match" in caplog.text
    assert new.pem.endswith(old.pem)
    assert new.is_whole
    serving = certificates.load_serving(tmp_path / "a", new, NAMES)
    verify(serving, new.pem, certificates.now())


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(days=3650)], ids=["hours", "years"])
def test_not_yet_valid_authority_is_reissued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead: timedelta
) -> None:
    """An authority that is not yet valid is reissued.

    The data directory was created while the clock was ahead. A clock less than an hour behind is harmless.
    """
    moment = certificates.now() + ahead
    known = certificates.load_authority(tmp_path, lambda: moment)
    certificates.load_serving(tmp_path, known, NAMES, lambda: moment)
    again = moment - timedelta(minutes=59)
    assert certificates.load_authority(tmp_path, lambda: again).pem == known.pem
    assert not caplog.records
    right = certificates.load_authority(tmp_path)
    serving = certificates.load_serving(tmp_path, right, NAMES)
    assert f"{tmp_path / 'ca.crt'} is not valid before" in caplog.text
    verify(serving, right.pem, certificates.now())
    assert certificates.load_authority(tmp_path).pem == right.pem


def test_not_yet_valid_serving_certificate_is_reissued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known, moment = certificates.load_authority(tmp_path), certificates.now() + timedelta(hours=2)
    certificates.load_serving(tmp_path, known, NAMES, lambda: moment)
    serving = certificates.load_serving(tmp_path, known, NAMES)
    assert f"{tmp_path / 'serving.crt'} is not valid before" in caplog.text
    verify(serving, known.pem, certificates.now())


class Clock:
    """A wall clock that tests set."""

    def __init__(self) -> None:
        self.now = certificates.now()

    def __call__(self) -> datetime:
        return self.now

    def on(self, days: float) -> None:
        """Advance the clock by this number of days."""
        self.now += timedelta(days=days)


def own_certificate(directory: Path, clock: Clock, *, renews: bool = True) -> ServingCertificate:
    """Return the serving certificate of a server that issues its own certificates."""
    return ServingCertificate(
        lambda: certificates.load_serving(directory, certificates.load_authority(directory, clock), NAMES, clock),
        renews=renews,
        clock=clock,
    )


def test_own_certificate_stays_valid_by_renewal_for_ten_years(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The client trusts the CA bundle of a kubeconfig that is a month old."""
    clock, known = Clock(), list[bytes]()
    one = own_certificate(tmp_path, clock)
    seen = {one.current.certificate.read_bytes()}
    for _ in range(0, 3700, 10):
        known.append(one.current.ca)
        clock.on(10)
        one.renew()
        content = one.current.certificate.read_bytes()
        if content not in seen:
            seen.add(content)
            one.reload()
        verify(one.current, known[-3:][0], clock.now)
        assert not one.fault()
        slots = [line.partition(" ") for line in one.family.lines()]
        for name, _, value in slots:
            assert float(value) > clock.now.timestamp() + (0 if "authority" in name else 86400)
    assert len(seen) == pytest.approx(11, abs=1)
    told = [record.getMessage() for record in caplog.records if "the server replaces it" in record.getMessage()]
    assert len(told) == pytest.approx(6, abs=1), "from 90 to 30 days before the end, here each ten days"


def test_expiry_of_a_provided_certificate_is_logged_daily(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    made = certificates.load_serving(tmp_path, certificates.load_authority(tmp_path), NAMES)
    one = ServingCertificate(lambda: certificates.given_serving(made.certificate, made.key), clock=clock)
    end = load(made.certificate).not_valid_after_utc
    lines: list[tuple[int, str]] = []
    while clock.now < end + timedelta(days=3):
        caplog.clear()
        one.renew()
        days = (end - clock.now) // timedelta(days=1)
        lines += [(days, record.getMessage()) for record in caplog.records]
        assert bool(one.fault()) is (clock.now > end)
        clock.on(0.25)
    assert len(lines) == pytest.approx(33, abs=1)
    assert len({days for days, _ in lines}) >= 32
    texts = [text for _, text in lines]
    assert f"expires at {end}, in 29 days" in texts[0]
    assert f"has expired at {end}" in texts[-1]
    assert all(str(made.certificate) in text for text in texts)
    assert [*one.family.lines()] == [f'{one.family.name}{{certificate="serving"}} {int(end.timestamp())}']
    caplog.clear()
    ServingCertificate(
        lambda: certificates.given_serving(made.certificate, made.key), renews=False, clock=clock
    ).renew()
    assert not caplog.records, "one worker tells of it"


def test_failed_renewal_is_logged_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    one = own_certificate(tmp_path, clock)
    clock.on(340)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        for _ in range(3):
            one.renew()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "cannot be renewed: [Errno 28] No space left on device" in told[0]
    assert "in 24 days" in told[1]
    one.renew()
    one.reload()
    assert one.current.renew_at > clock.now


def test_ca_of_a_provided_chain_is_its_last_certificate(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    made = certificates.load_serving(tmp_path, authority, NAMES)
    leaf, file = made.certificate.read_bytes(), tmp_path / "given.crt"
    key = made.key.read_bytes()
    for content, pinned in (
        (leaf, leaf),
        (key + leaf, leaf),
        (leaf + authority.pem + key, authority.pem),
        (authority.pem, authority.pem),
    ):
        file.write_bytes(content)
        found = certificates.given_serving(file, made.key)
        assert found.ca == pinned
        assert found.ends is not None
    odd = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    file.write_bytes(key + odd)
    assert certificates.given_serving(file, made.key).ca == odd
    assert not ServingCertificate(lambda: certificates.given_serving(file, made.key)).fault()


def test_certificates_have_extensions_for_strict_verification(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    serving = certificates.load_serving(tmp_path, authority, NAMES)
    ca, leaf = authority.certificate.extensions, load(serving.certificate).extensions
    constraints = ca.get_extension_for_class(x509.BasicConstraints)
    usage = ca.get_extension_for_class(x509.KeyUsage)
    assert (constraints.critical, constraints.value.ca) == (True, True)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, True, True)
    identifier = ca.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == identifier
    assert list(leaf.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # tests in unit/http do the handshake
    assert context.cert_store_stats()["x509_ca"] == 1


@pytest.mark.rows("AUT-001")
@pytest.mark.filterwarnings("error")
def test_user_names_may_exceed_the_x520_length(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    pem, _ = certificates.issue_client(authority, "a" * 65, ["g" * 65], timedelta(hours=1))
    user = user_of_certificate(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
    assert user is not None
    assert (user.name, user.groups) == ("a" * 65, ("g" * 65, "system:authenticated"))
    own = tmp_path / "own.crt"
    own.write_bytes(pem)
    for name in ("a" * 65, "a"):
        proxies = Proxies(ProxyConfig(str(own), allowed_names=(name,)), "")
        assert proxies._allowed(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)) is (len(name) == 65)


@pytest.mark.rows("AUT-001")
def test_client_certificate_contains_user_and_groups(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    pem, key = certificates.issue_client(authority, "alice", ["devs", "ops"], timedelta(hours=1))
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    user = user_of_certificate(der)
    assert user is not None
    assert (user.name, user.groups) == ("alice", ("devs", "ops", "system:authenticated"))
    assert key.startswith(b"-----BEGIN EC PRIVATE KEY-----\n"), "fabric8 takes keys without a kind for RSA"


def test_generated_token_is_reused_and_private(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = certificates.load_token(file)
    assert len(token) >= 32
    assert certificates.load_token(file) == token
    assert mode(file) == 0o600


def test_written_kubeconfig_is_complete_and_private(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    kubeconfig.write(file, kubeconfig.Access("https://127.0.0.1:6443", b"CA", "secret"))
    assert mode(file) == 0o600
    document = yaml.safe_load(file.read_text())
    assert (document["apiVersion"], document["kind"], document["current-context"]) == ("v1", "Config", "apiext")
    assert document["clusters"][0]["cluster"]["certificate-authority-data"] == "Q0E="
    assert document["users"] == [{"name": "apiext", "user": {"token": "secret"}}]
    assert document["contexts"][0]["context"] == {"cluster": "apiext", "namespace": "default", "user": "apiext"}


def test_kubeconfig_of_no_user_and_of_a_client_certificate(tmp_path: Path) -> None:
    document = kubeconfig.document(kubeconfig.Access("http://127.0.0.1:8080"))
    assert document["users"] == []
    assert "user" not in document["contexts"][0]["context"]
    certificate = kubeconfig.document(kubeconfig.Access("https://x", b"", "", b"C", b"K"))
    assert certificate["users"][0]["user"] == {"client-certificate-data": "Qw==", "client-key-data": "Sw=="}


def test_failed_file_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        files.write(target, b"x")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
