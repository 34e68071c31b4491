"""The client while etcd is killed, frozen or full, with passwords, and with TLS."""

import asyncio
import base64
import datetime
import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from apiext.etcd import errors
from apiext.etcd import limits as etcd_limits
from apiext.etcd.client import TLS, Etcd, prefix_end
from apiext.etcd.transport import Dial
from tests.etcd.conftest import BINARIES, TRANSPORTS, Binary, RealEtcd, running
from tests.etcd.test_calls import Listener, until

pytestmark = [
    pytest.mark.parametrize("transport", TRANSPORTS),
    pytest.mark.skipif(not BINARIES, reason="no etcd is installed"),
]
NEWEST = max(BINARIES, key=lambda binary: (binary.durable, binary.version)) if BINARIES else Binary(Path(), (0, 0, 0))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_writes_and_watches_survive_etcd_restarts(tmp_path: Path, transport: Dial, how: signal.Signals) -> None:
    with running(NEWEST, tmp_path) as etcd:
        await check_restarts(etcd, transport, how)


async def check_restarts(etcd: RealEtcd, transport: Dial, how: signal.Signals) -> None:
    client = Etcd([etcd.url], transport=transport)
    await client.start()
    heard = Listener()
    heard.watch(client, b"/", 2)
    acknowledged: dict[bytes, int] = {}
    doubtful: set[bytes] = set()
    stop = asyncio.Event()

    async def writer(lane: int) -> None:
        for n in range(etcd_limits.RELIST_GAP // 32):  # with more, the cache could list again
            if stop.is_set():
                return
            key = b"/%d/%d" % (lane, n)
            try:
                result = await client.create(key, key)
                assert result.ok
                acknowledged[key] = result.revision
            except (errors.UnknownOutcome, errors.Unavailable):
                doubtful.add(key)

    async def more_writes() -> None:
        enough = len(acknowledged) + 50
        await until(lambda: len(acknowledged) >= enough)

    async with asyncio.TaskGroup() as group:
        for lane in range(32):
            group.create_task(writer(lane))
        for _ in range(3):
            await more_writes()
            await asyncio.to_thread(etcd.stop, how)
            etcd.start()
            await until(lambda: client.connected)
        await more_writes()
        stop.set()
    stored = {kv.key: kv.mod_revision for kv in (await client.range(b"/", prefix_end(b"/"))).kvs}
    assert {key: stored.get(key) for key in acknowledged} == acknowledged
    assert set(stored) <= set(acknowledged) | doubtful
    assert len(acknowledged) > 100
    await heard.until(len(stored))
    late = {kv.key: kv.mod_revision for kv in (await client.range(b"/", prefix_end(b"/"))).kvs}
    assert set(late) - set(stored) <= doubtful, "only a write of unknown outcome may land late"
    await heard.until(len(late))
    assert heard.ends == []
    assert heard.events == sorted((revision, 0, key) for key, revision in late.items())
    await client.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_frozen_etcd_leaves_outcome_of_updates_unknown(tmp_path: Path, transport: Dial) -> None:
    with running(NEWEST, tmp_path) as etcd:
        client = Etcd([etcd.url], transport=transport, budget=4)
        await client.start()
        heard = Listener()
        heard.watch(client, b"/", await client.head_revision() + 1)
        first = await client.create(b"/k", b"1")
        await heard.until(1)
        etcd.process.send_signal(signal.SIGSTOP)
        await until(lambda: state(etcd.process.pid) == "T")
        results = await asyncio.gather(
            client.get(b"/k"), client.update(b"/k", b"2", first.revision), return_exceptions=True
        )
        assert [type(result) for result in results] == [errors.Unavailable, errors.UnknownOutcome]
        etcd.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(20):
            while True:
                try:
                    found = await client.get(b"/k")
                    break
                except errors.Unavailable:
                    continue
        assert found is not None
        again = await client.update(b"/k", b"3", found.mod_revision)
        assert again.ok or (again.current is not None and again.current.value == b"2")
        await heard.until(2)
        assert heard.ends == []
        await client.close()


async def test_client_uses_second_endpoint_if_first_is_down(tmp_path: Path, transport: Dial) -> None:
    with running(NEWEST, tmp_path) as etcd:
        client = Etcd(["http://127.0.0.1:1", etcd.url], transport=transport)
        await client.start()
        assert (await client.create(b"/k", b"1")).ok
        await client.close()


async def test_start_fails_without_an_etcd(transport: Dial) -> None:
    client = Etcd(["http://127.0.0.1:1"], transport=transport, budget=1)
    with pytest.raises(errors.Unavailable) as caught:
        await client.start()
    assert "127.0.0.1:1" in caught.value.message
    assert not caught.value.sent


async def test_start_fails_if_the_server_is_no_etcd(transport: Dial) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as web:
        port = web.sockets[0].getsockname()[1]
        client = Etcd([f"http://127.0.0.1:{port}"], transport=transport, budget=1)
        with pytest.raises(errors.Unavailable):
            await client.start()


async def test_tls_to_a_plain_etcd_fails_with_a_reason(tmp_path: Path, transport: Dial) -> None:
    with running(NEWEST, tmp_path) as etcd:
        client = Etcd([etcd.url.replace("http:", "https:")], transport=transport, budget=1)
        with pytest.raises(errors.Unavailable) as caught:
            await client.start()
        assert not caught.value.message.rstrip().endswith(":"), "there is a reason"


async def test_writes_succeed_again_after_a_nospace_alarm(tmp_path: Path, transport: Dial) -> None:
    # over its quota etcd 3.5.1 refuses deletes, too; with a batch limit of 1 it counts each write at once
    flags = ("--quota-backend-bytes=3000000", "--backend-batch-limit=1")
    with running(NEWEST, tmp_path, *flags) as etcd:
        client = Etcd([etcd.url], transport=transport)
        await client.start()
        revision = (await client.create(b"/k", bytes(300_000))).revision
        for _ in range(2):
            revision = (await client.update(b"/k", bytes(300_000), revision)).revision
        with pytest.raises(errors.OutOfSpace):
            await client.update(b"/k", bytes(1_450_000), revision)
        (alarm,) = await client.alarms()
        assert alarm.kind == "NOSPACE"
        found = await client.get(b"/k")
        assert found is not None
        revision = (await client.delete(b"/k", found.mod_revision)).revision
        await client.compact(revision)
        await client.defragment()
        await client.disarm(alarm)
        assert await client.alarms() == []
        assert (await client.create(b"/k", b"small")).ok
        await client.close()


async def test_writes_succeed_again_after_a_corrupt_alarm(
    tmp_path: Path, transport: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    """Corrupt members refuse all writes, so no outcome is unknown."""
    with running(NEWEST, tmp_path) as etcd:
        client = Etcd([etcd.url], transport=transport)
        await client.start()
        revision = (await client.create(b"/k", b"1")).revision
        member = (await client.status()).member_id
        await asyncio.to_thread(post, etcd, "maintenance/alarm", action="ACTIVATE", memberID=member, alarm="CORRUPT")
        writes = (client.create(b"/l", b"1"), client.update(b"/k", b"2", revision), client.delete(b"/k", revision))
        for write in writes:
            with pytest.raises(errors.Corrupt):
                await write
        assert [record.getMessage() for record in caplog.records] == [
            "etcd has its CORRUPT alarm raised and accepts no writes: etcdserver: corrupt cluster"
        ]
        (alarm,) = await client.alarms()
        await client.disarm(alarm)
        assert (await client.update(b"/k", b"2", revision)).revision == revision + 1
        await client.close()


def post(etcd: RealEtcd, path: str, token: str = "", **body: Any) -> Any:
    headers = {"Authorization": token} if token else {}
    request = urllib.request.Request(f"{etcd.url}/v3/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def current_token(etcd: RealEtcd) -> str:
    return str(post(etcd, "auth/authenticate", name="root", password="secret")["token"])


async def test_client_authenticates_with_user_and_password(tmp_path: Path, transport: Dial) -> None:
    with running(NEWEST, tmp_path) as etcd:
        early = Etcd([etcd.url], transport=transport, user="root", password="secret")
        await early.start()  # authentication is enabled below
        await early.create(b"/before", b"")
        for name, password in (("root", "secret"), ("poor", "mouse")):
            post(etcd, "auth/user/add", name=name, password=password)
        post(etcd, "auth/role/add", name="root")
        post(etcd, "auth/user/grant", user="root", role="root")
        post(etcd, "auth/enable")
        client = Etcd([etcd.url], transport=transport, user="root", password="secret")
        await client.start()
        heard = Listener()
        heard.watch(client, b"/", await client.head_revision() + 1)
        assert (await client.create(b"/k", b"1")).ok
        await heard.until(1)
        assert (await early.create(b"/l", b"1")).ok  # the client logs in after the first refusal
        for user, password in (("root", "guess"), ("nobody", ""), ("poor", "mouse"), ("", "")):
            stranger = Etcd([etcd.url], transport=transport, user=user, password=password, budget=5)
            with pytest.raises(errors.EtcdError) as caught:
                await stranger.start()
            assert isinstance(caught.value, errors.AuthError) or not user
        etcd.stop()
        etcd.start()  # etcd loses its tokens
        await client.get(b"/k")  # the client repeats a read until it succeeds; the outcome of a write would be unknown
        assert (await client.create(b"/m", b"1")).ok
        await heard.until(3)
        assert [key for _, _, key in heard.events] == [b"/k", b"/l", b"/m"]
        await early.close()
        await client.close()


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.text)
async def test_client_renews_its_jwt_after_a_change_of_roles(tmp_path: Path, binary: Binary, transport: Dial) -> None:
    """A later watch logs in again, as calls do, even if no call has done so."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoded = serialization.Encoding.PEM
    (tmp_path / "jwt.key").write_bytes(
        key.private_bytes(encoded, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
    (tmp_path / "jwt.pub").write_bytes(
        key.public_key().public_bytes(encoded, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    jwt = "--auth-token=jwt,pub-key=jwt.pub,priv-key=jwt.key,sign-method=RS256,ttl=10m"
    with running(binary, tmp_path, jwt) as etcd:
        post(etcd, "auth/user/add", name="root", password="secret")
        post(etcd, "auth/role/add", name="root")
        post(etcd, "auth/user/grant", user="root", role="root")
        early = Etcd([etcd.url], transport=transport, user="root", password="secret")
        await early.start()  # authentication is enabled below
        post(etcd, "auth/enable")
        client = Etcd([etcd.url], transport=transport, user="root", password="secret")
        await client.start()
        assert (await client.create(b"/k", b"1")).ok
        post(etcd, "auth/role/add", current_token(etcd), name="other")
        for one in (client, early):
            heard = Listener()
            heard.watch(one, b"/", 2)
            await heard.until(1)
            post(etcd, "auth/role/add", current_token(etcd), name=f"another{one is early}")
            made = await one.create(f"/{one is early}".encode(), b"1")
            assert (made.ok, heard.ends) == (True, [])
            await one.close()


async def test_client_recovers_when_a_changed_password_is_restored(tmp_path: Path, transport: Dial) -> None:
    """All calls fail with a wrong password.

    With the correct password again, calls succeed and the watch continues.
    """
    with running(NEWEST, tmp_path) as etcd:
        for name in ("root", "app"):
            post(etcd, "auth/user/add", name=name, password="secret")
        post(etcd, "auth/role/add", name="root")
        for name in ("root", "app"):
            post(etcd, "auth/user/grant", user=name, role="root")
        post(etcd, "auth/enable")
        client = Etcd([etcd.url], transport=transport, user="app", password="secret", budget=1)
        await client.start()
        heard = Listener()
        heard.watch(client, b"/", await client.head_revision() + 1)
        over = asyncio.get_running_loop().create_task(client.wait_closed())

        def change(password: str) -> None:
            post(etcd, "auth/user/changepw", current_token(etcd), name="app", password=password)
            etcd.stop()
            etcd.start()

        await asyncio.to_thread(change, "another")
        refused: errors.EtcdError | None = None
        async with asyncio.timeout(30):
            while not isinstance(refused, errors.AuthError):  # each try waits until etcd is available
                with pytest.raises(errors.EtcdError) as caught:
                    await client.get(b"/k")
                refused = caught.value
        with pytest.raises(errors.AuthError):
            await client.create(b"/j", b"1")
        await asyncio.to_thread(change, "secret")
        await until(lambda: client.connected)
        await client.get(b"/k")
        assert (await client.create(b"/k", b"1")).ok
        await heard.until(1)
        assert [key for _, _, key in heard.events] == [b"/k"]
        assert not over.done()
        await client.close()
        await over


def certificate(directory: Path, name: str, issuer: Any = None) -> Any:
    """Write NAME.pem and NAME.key for localhost; return (certificate, key).

    The certificate is signed by an issuer, or self-signed.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signer, signing_key = issuer or (None, key)
    names = [x509.DNSName("localhost"), x509.DNSName("etcd.example")]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .sign(signing_key, hashes.SHA256())
    )
    (directory / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made, key


async def test_client_connects_with_a_client_certificate(tmp_path: Path, transport: Dial) -> None:
    authority = certificate(tmp_path, "ca")
    for name in ("server", "client"):
        certificate(tmp_path, name, authority)
    certificate(tmp_path, "other")
    flags = ["--cert-file=server.pem", "--key-file=server.key", "--trusted-ca-file=ca.pem", "--client-cert-auth"]
    with running(NEWEST, tmp_path, *flags, scheme="https") as etcd:
        url = f"https://127.0.0.1:{etcd.port}"
        pem = {name: str(tmp_path / name) for name in ("ca.pem", "client.pem", "client.key", "other.pem", "other.key")}
        good = TLS(pem["ca.pem"], pem["client.pem"], pem["client.key"], "etcd.example")
        client = Etcd([url], transport=transport, tls=good)
        await client.start()
        value = base64.b64encode(bytes(500_000))
        assert (await client.create(b"/k", value)).ok
        found = await client.get(b"/k")
        assert found is not None
        assert found.value == value
        await client.close()
        wrong = {
            "another authority": TLS(pem["other.pem"], pem["client.pem"], pem["client.key"], "etcd.example"),
            "no certificate": TLS(pem["ca.pem"], server_name="etcd.example"),
            "another name": TLS(pem["ca.pem"], pem["client.pem"], pem["client.key"], "else.example"),
        }
        for name, tls in wrong.items():
            stranger = Etcd([url], transport=transport, tls=tls, budget=0.5)
            with pytest.raises(errors.Unavailable):
                await stranger.start()
            assert not stranger.connected, name
