"""The server, tested over sockets: responses, bodies, limits, errors, shutdown."""

import asyncio
import gzip
import ssl
import time
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest

from apiext.auth import authentication, certificates
from apiext.auth.authentication import Credentials
from apiext.auth.authorization import Attributes, Decision
from apiext.auth.proxies import Proxies
from apiext.auth.serving import ServingCertificate
from apiext.auth.user import authenticated
from apiext.catalog.converted import NeedsConversion
from apiext.catalog.stored import WrongVersion
from apiext.config import ProxyConfig
from apiext.documents import limits as documents_limits
from apiext.http import connection, tls
from apiext.http import limits as http_limits
from apiext.http.server import HttpServer
from apiext.http.tls import request_client_certificates, tls_context
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

ONE = f"{COLLECTION}/a?resourceVersion=0"


@on_uvloop
async def test_get_from_the_cache() -> None:
    shelf = Shelf()
    entry = shelf.put("a", x=1)
    async with serving(shelf) as server, connected(server) as client:
        for given in ("", "mine"):
            headers = {"Audit_Id": given} if given else {}
            answer = await client.ask("GET", ONE, **headers)
            assert answer.code == 200
            assert answer.json["metadata"]["resourceVersion"] == str(entry.revision)
            assert answer.body.endswith(b"}\n")
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Cache-Control"] == "no-cache, private"
            assert answer.headers["Audit-Id"] == given or (not given and len(answer.headers["Audit-Id"]) == 36)
            assert "Date" in answer.headers
        assert len(shelf.calls) == 2
        scrape = await client.ask("GET", "/metrics")
        assert (
            b'apiserver_request_total{verb="GET",dry_run="",group="example.com",version="v1",resource="widgets",'
            b'subresource="",scope="resource",component="apiserver",code="200"} 2'
        ) in scrape.body


@on_uvloop
async def test_cached_object_is_served_in_each_representation() -> None:
    shelf = Shelf()
    shelf.put("a", x=1)
    async with serving(shelf) as server, connected(server) as client:
        assert (await client.ask("GET", ONE, User_Agent="curl/8")).body.startswith(b"{\n  ")
        assert (await client.ask("GET", ONE, Accept="application/yaml")).headers["Content-Type"] == "application/yaml"
        assert (await client.ask("GET", ONE, Accept="text/html")).code == 406
        assert (await client.ask("GET", ONE.replace("/a?", "/zz?"))).code == 404
        assert (await client.ask("GET", ONE.replace("widgets", "gadgets"))).body == b"404 page not found\n"
        head = await client.ask("HEAD", ONE)
        assert (head.code, head.body) == (200, b"")
        assert int(head.headers["Content-Length"]) > 100
        assert (await client.ask("GET", ONE.replace("/a?", "/%61?"))).code == 200
        assert (await client.ask("GET", ONE.replace("namespaces/d/", ""))).code == 404
        shelf.catalog.current = shelf.catalog.current.without_resource("example.com", "widgets")
        assert (await client.ask("GET", ONE)).code == 404


PROTOBUF = "application/vnd.kubernetes.protobuf"
GREEDY = "application/vnd.kubernetes.protobuf,application/json"
RATHER = "application/vnd.kubernetes.protobuf;q=0.9,application/json;q=0.8"
HARDLY = "application/vnd.kubernetes.protobuf;q=0.8,application/json;q=0.9"


@pytest.mark.rows("NEG-002", "NEG-003")
@pytest.mark.parametrize("first", ["typed", "custom"])
@on_uvloop
async def test_protobuf_depends_on_the_kind_not_on_earlier_requests(first: str) -> None:
    shelf = Shelf()
    shelf.put("a", x=1)
    shelf.put("n", "", "namespaces")
    paths = {"typed": "/api/v1/namespaces/n?resourceVersion=0", "custom": ONE}
    async with serving(shelf) as server:
        for accept, typed in ((GREEDY, PROTOBUF), (RATHER, PROTOBUF), (HARDLY, "application/json")):
            async with connected(server) as client:
                for which in (first, "typed", "custom", "custom", "typed"):
                    answer = await client.ask("GET", paths[which], Accept=accept)
                    expected = typed if which == "typed" else "application/json"
                    assert (answer.code, answer.headers["Content-Type"]) == (200, expected), (accept, which)
        async with connected(server) as client:
            for _ in range(2):
                typed_only = await client.ask("GET", paths["typed"], Accept=PROTOBUF)
                assert (typed_only.code, typed_only.headers["Content-Type"]) == (200, PROTOBUF)
                assert (await client.ask("GET", paths["custom"], Accept=PROTOBUF)).code == 406


@pytest.mark.rows("RV-021")
@on_uvloop
async def test_a_large_object_is_compressed() -> None:
    shelf = Shelf()
    shelf.put("a", x="y" * http_limits.GZIP_FROM)
    shelf.put("b", x="y")
    async with serving(shelf) as server, connected(server) as client:
        whole = await client.ask("GET", ONE)
        assert (whole.headers["Vary"], "Content-Encoding" in whole.headers) == ("Accept-Encoding", False)
        for _ in range(2):
            answer = await client.ask("GET", ONE, Accept_Encoding="gzip")
            assert (answer.headers["Vary"], answer.headers["Content-Encoding"]) == ("Accept-Encoding", "gzip")
            assert gzip.decompress(answer.body) == whole.body
            small = await client.ask("GET", ONE.replace("/a?", "/b?"), Accept_Encoding="gzip")
            assert "Vary" not in small.headers


@on_uvloop
async def test_pipelined_requests_are_answered_in_order() -> None:
    shelf = Shelf()
    for number in range(40):
        shelf.put(f"n{number}")
    async with serving(shelf) as server, connected(server) as client:
        for number in range(40):
            client.send("GET", f"{COLLECTION}/n{number}?resourceVersion=0")
        names = [(await client.receive()).json["metadata"]["name"] for _ in range(40)]
        assert names == [f"n{number}" for number in range(40)]


@on_uvloop
async def test_split_requests_are_answered() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        for piece in (b"GET " + ONE.encode(), b" HTTP/1.1\r\nHo", b"st: x\r\n\r\nGET " + ONE.encode()):
            client.writer.write(piece)
            await asyncio.sleep(0)
        assert (await client.receive()).code == 200
        client.writer.write(b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await client.receive()).code == 200


@pytest.mark.rows("ERR-19", "AUT-002", "AUT-003")
@on_uvloop
async def test_bearer_tokens_authenticate_requests() -> None:
    shelf = Shelf()
    shelf.put("a")
    known = Credentials({"secret": authenticated("alice")})
    async with serving(shelf, authenticator=known) as server, connected(server) as client:
        refused = await client.ask("GET", ONE)
        assert (refused.code, refused.json["message"], refused.json["reason"]) == (401, "Unauthorized", "Unauthorized")
        assert (await client.ask("GET", ONE, Authorization="Bearer wrong")).code == 401
        assert (await client.ask("GET", ONE, Authorization="Bearer secret")).code == 200
        assert (await client.ask("GET", ONE)).code == 401
        for path in ("/healthz", "/livez", "/readyz", "/version"):
            assert (await client.ask("GET", path)).code == 200
        assert (await client.ask("GET", "/metrics")).code == 401
        assert (await client.ask("GET", "/healthz", Authorization="Bearer wrong")).code == 401
        attempts = server.telemetry.authentications
        counts = [attempts.slot(kind).value for kind in ("success", "failure", "error")]
        assert counts == [5, 3, 2], "each request is one attempt"


@pytest.mark.rows("ERR-18")
@on_uvloop
async def test_denied_requests_get_403_with_upstream_message() -> None:
    seen: list[Attributes] = []

    def deny(attributes: Attributes) -> Decision:
        seen.append(attributes)
        return Decision(False)

    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf, authorizer=deny) as server, connected(server) as client:
        answer = await client.ask("GET", ONE)
        assert answer.code == 403
        assert answer.json["message"] == (
            'widgets.example.com "a" is forbidden: User "admin" cannot get resource "widgets" in API group '
            '"example.com" in the namespace "d"'
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (await client.ask("GET", "/x<")).json["message"] == 'forbidden: User "admin" cannot get path "/x&lt;"'
    assert (seen[0].verb, seen[0].resource, seen[0].name) == ("get", "widgets", "a")


@pytest.mark.rows("AUT-001")
@on_uvloop
async def test_client_certificates_authenticate_requests(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    serving_pair = certificates.load_serving(tmp_path, authority, certificates.serving_names("127.0.0.1"))
    ca = tmp_path / "ca.crt"
    context = tls_context(str(serving_pair.certificate), str(serving_pair.key))
    request_client_certificates(context, str(ca))
    pem, key = certificates.issue_client(authority, "alice", ["devs"])
    (tmp_path / "client.pem").write_bytes(pem + key)
    ours = ssl.create_default_context(cafile=str(ca))
    ours.verify_flags |= ssl.VERIFY_X509_STRICT
    ours.set_alpn_protocols(["h2", "http/1.1"])
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf, authenticator=Credentials({}), tls=context) as server:
        assert server.url.startswith("https://127.0.0.1:")
        async with connected(server, ours) as client:
            assert (await client.ask("GET", COLLECTION)).code == 401
            assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        ours.load_cert_chain(tmp_path / "client.pem")
        async with connected(server, ours) as client:
            assert (await client.ask("GET", COLLECTION)).code == 200
            assert (await client.ask("GET", ONE)).code == 200
    assert shelf.calls[0].user.name == "alice"
    assert shelf.calls[0].user.groups == ("devs", "system:authenticated")


@on_uvloop
async def test_a_certificate_is_renewed_while_serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open connections continue after a renewal of the certificate.

    New connections get the new certificate before the old one expires.
    """
    monkeypatch.setattr(tls, "CERTIFICATE_CHECK_EVERY", 0.02)
    moment, names = certificates.now() - timedelta(days=336), certificates.serving_names("127.0.0.1")
    looks: list[datetime] = []

    def clock() -> datetime:
        looks.append(moment)
        return moment

    own = ServingCertificate(
        lambda: certificates.load_serving(
            tmp_path, certificates.load_authority(tmp_path, lambda: moment), names, lambda: moment
        ),
        clock=clock,
    )
    first, context = own.current, tls_context(*own.files)
    client = ssl.create_default_context(cadata=first.ca.decode())
    shelf, changes = Shelf(), list[certificates.Serving]()
    shelf.put("a")
    own.changed.append(changes.append)

    async def shown(server: HttpServer) -> bytes:
        async with connected(server, client) as line:
            found = line.writer.get_extra_info("ssl_object").getpeercert(True)
            assert isinstance(found, bytes)
            return found

    known = Credentials({"sesame": authenticated("bob")})
    async with (
        serving(shelf, authenticator=known, tls=context, certificate=own) as server,
        connected(server, client) as open_line,
    ):
        before = await shown(server)
        seen = len(looks)
        await until(lambda: len(looks) > seen + 1)
        assert not changes
        moment += timedelta(days=336)
        await until(lambda: bool(changes))
        assert await shown(server) != before
        assert changes[0].renew_at > moment
        assert changes[0].ca == first.ca
        assert (await open_line.ask("GET", ONE, Authorization="Bearer sesame")).code == 200


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("proxied", [False, True], ids=["alone", "proxied"])
def test_client_certificate_expires_by_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: bool
) -> None:
    """A client certificate expires on time, also if the machine slept or its clock was set.

    The loop's timers do not notice this.
    """
    authority = certificates.load_authority(tmp_path)
    pair = certificates.load_serving(tmp_path, authority, certificates.serving_names("127.0.0.1"))
    ca = str(tmp_path / "ca.crt")
    context = tls_context(str(pair.certificate), str(pair.key))
    request_client_certificates(context, ca)
    pem, key = certificates.issue_client(authority, "alice", ["devs"], timedelta(hours=1))
    (tmp_path / "client.pem").write_bytes(pem + key)
    ours = ssl.create_default_context(cafile=ca)
    ours.load_cert_chain(tmp_path / "client.pem")
    proxies = Proxies(ProxyConfig(ca, allowed_names=("no",)), ca) if proxied else None
    later = 0.0
    monkeypatch.setattr(connection, "time", lambda: time.time() + later)
    shelf = Shelf()
    shelf.put("a")

    @on_uvloop
    async def ask() -> None:
        nonlocal later
        known = Credentials({"sesame": authenticated("bob")})
        async with (
            serving(shelf, authenticator=known, tls=context, proxies=proxies) as server,
            connected(server, ours) as client,
        ):
            for later, code in ((0, 200), (3590, 200), (3700, 401), (7200, 401), (10, 200), (-3590, 200), (-3700, 401)):
                for url in (COLLECTION, ONE):
                    assert (await client.ask("GET", url)).code == code, (later, url)
                    assert (await client.ask("GET", url, Authorization="Bearer sesame")).code == 200

    ask()


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("proxied", [False, True], ids=["alone", "proxied"])
def test_unreadable_client_certificate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, proxied: bool
) -> None:
    """A client certificate is refused if Python's library cannot read it.

    OpenSSL accepts such a certificate, for example one with the serial number 0.
    """
    authority = certificates.load_authority(tmp_path)
    pair = certificates.load_serving(tmp_path, authority, certificates.serving_names("127.0.0.1"))
    ca = str(tmp_path / "ca.crt")
    context = tls_context(str(pair.certificate), str(pair.key))
    request_client_certificates(context, ca)
    pem, key = certificates.issue_client(authority, "alice", ["devs"], timedelta(hours=1))
    (tmp_path / "client.pem").write_bytes(pem + key)
    ours = ssl.create_default_context(cafile=ca)
    ours.load_cert_chain(tmp_path / "client.pem")
    proxies = Proxies(ProxyConfig(ca, allowed_names=("no",)), ca) if proxied else None

    def refuse(der: bytes) -> None:
        raise ValueError("odd serial number")

    monkeypatch.setattr(authentication, "read_certificate", refuse)

    @on_uvloop
    async def ask() -> None:
        known = Credentials({"sesame": authenticated("bob")})
        async with (
            serving(Shelf(), authenticator=known, tls=context, proxies=proxies) as server,
            connected(server, ours) as client,
        ):
            assert (await client.ask("GET", COLLECTION)).code == 401
            assert (await client.ask("GET", COLLECTION, Authorization="Bearer sesame")).code == 200

    ask()
    assert "its requests are refused: odd serial number" in caplog.text


@pytest.mark.rows("ERR-16", "WRI-025")
@on_uvloop
async def test_bodies_over_the_size_limit_get_413() -> None:
    shelf = Shelf()
    async with serving(shelf) as server:
        async with connected(server) as client:
            answer = await client.ask(
                "POST", COLLECTION, b"x" * (documents_limits.MAX_BODY + 1), Content_Type="application/json"
            )
            assert answer.code == 413
            assert answer.json["message"] == "Request entity too large: limit is 3145728"
            assert answer.json["reason"] == "RequestEntityTooLarge"
        async with connected(server) as client:
            client.send("POST", COLLECTION, Transfer_Encoding="chunked")
            for _ in range(49):
                client.writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            client.writer.write(b"0\r\n\r\n")
            assert (await client.receive()).code == 413
        async with connected(server) as client:
            body = orjson.dumps({"kind": "Widget", "metadata": {"name": "big"}, "spec": {"t": "x" * 2_000_000}})
            assert (await client.ask("POST", COLLECTION, body)).code == 201


@on_uvloop
async def test_expect_continue_gets_100_before_the_body() -> None:
    shelf = Shelf()
    body = b'{"metadata": {"name": "a"}}'
    async with serving(shelf) as server:
        async with connected(server) as client:
            client.send("POST", COLLECTION, Expect="100-continue", Content_Length=str(len(body)))
            assert (await client.head())[0] == 100
            client.writer.write(body)
            assert (await client.receive()).code == 201
            assert (await client.ask("GET", ONE)).code == 200
        async with connected(server) as client:  # refused before the body is read: no 100, and the connection is closed
            client.send("POST", "/apis/none.example.com/v1/x", Expect="100-continue", Content_Length="99")
            answer = await client.receive()
            assert (answer.code, answer.headers["Connection"]) == (404, "close")
            assert await asyncio.wait_for(client.reader.read(), 20) == b""


@on_uvloop
async def test_compressed_bodies_are_refused() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        answer = await client.ask("POST", COLLECTION, b"\x1f\x8b", Content_Encoding="gzip")
        assert (answer.code, answer.json["reason"]) == (415, "UnsupportedMediaType")
        assert (await client.ask("GET", "/healthz")).code == 200


@pytest.mark.rows("WRI-024", "LIM-002", "ERR-20")
@pytest.mark.parametrize(("query", "settings"), [("?timeout=10ms", {}), ("", {"timeout": 0.01})])
@on_uvloop
async def test_requests_past_their_deadline_get_504(query: str, settings: dict[str, float]) -> None:
    shelf = Shelf(gate=asyncio.Event())
    async with serving(shelf, **settings) as server, connected(server) as client:
        answer = await client.ask("GET", f"{COLLECTION}/a{query}")
        assert answer.code == 504
        assert answer.json["message"] == (
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
        )
        assert (await client.ask("GET", "/healthz")).code == 200


@pytest.mark.rows("WRI-024")
@pytest.mark.parametrize(
    ("seconds", "query", "wanted"),
    [
        (5.0, "", 5.0),
        (600.0, "", http_limits.REQUEST_DEADLINE),
        (60.0, "?timeout=5s", 5.0),
        (60.0, "?timeout=50s", http_limits.REQUEST_DEADLINE),
    ],
)
@on_uvloop
async def test_call_deadline_is_the_earlier_of_two_limits(seconds: float, query: str, wanted: float) -> None:
    shelf = Shelf()
    async with serving(shelf, timeout=seconds) as server, connected(server) as client:
        before = asyncio.get_running_loop().time()
        await client.ask("GET", COLLECTION + query)
        assert before + wanted <= shelf.calls[0].deadline <= asyncio.get_running_loop().time() + wanted


@pytest.mark.rows("WRI-024")
@on_uvloop
async def test_invalid_timeout_gets_400() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        answer = await client.ask("GET", f"{COLLECTION}?timeout=abc")
        assert answer.code == 400
        assert answer.json["message"] == ('invalid timeout specified in the request URL - time: invalid duration "abc"')


@pytest.mark.rows("AUT-007")
@on_uvloop
async def test_exceptions_are_logged_and_get_500(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Shelf(fails=ZeroDivisionError("oops"))) as server, connected(server) as client:
        answer = await client.ask("GET", COLLECTION, Audit_Id="find-me")
        assert answer.code == 500
        assert answer.json["message"] == "This request caused apiserver to panic. Look in the logs for details."
        assert (await client.ask("GET", "/healthz")).code == 200
    assert "find-me" in caplog.text
    assert "oops" in caplog.text


@pytest.mark.rows("VER-008", "VER-011")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            WrongVersion("request to convert CR from x/v1", {"metadata": {"namespace": "d", "name": "a"}}),
            "request to convert CR from x/v1",
        ),
        (
            NeedsConversion(b'{"apiVersion":"x/v1","kind":"K"}', "x/v2", "", lambda answer, metadata: None),
            "conversion webhook for x/v1, Kind=K failed: its answer was not kept",
        ),
    ],
)
@on_uvloop
async def test_conversion_errors_of_objects_get_500(error: Exception, message: str) -> None:
    async with serving(Shelf(fails=error)) as server, connected(server) as client:
        answer = await client.ask("GET", COLLECTION)
        assert (answer.code, answer.json["message"]) == (500, message)


@on_uvloop
async def test_disconnected_clients_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(gate=asyncio.Event())
    async with serving(shelf) as server:
        async with connected(server) as client:
            client.send("GET", COLLECTION)
            await until(lambda: bool(shelf.calls))
        async with connected(server) as client:
            client.send("POST", COLLECTION, Content_Length="100")
            client.writer.write(b"half")
        assert shelf.gate is not None
        shelf.gate.set()
        await until(lambda: not server.service.in_flight.count)
    assert caplog.text == ""
