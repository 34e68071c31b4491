"""Authentication by client certificates and by headers of a proxy.

The rows are those of kube-apiserver v1.36.3.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.conformance.test_tls import handshake
from tests.support.client_certificates import CN, ORG, UID, ClientAuthority, Subject, dialling
from tests.support.processes import SERVE, Etcd, Server, running_server
from tests.support.shared import ROOT

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CREDENTIAL = "authentication.kubernetes.io/credential-id"
AUTHENTICATED = "system:authenticated"
TOLD = (
    ("X-Remote-User", "bob"), ("X-Remote-Group", "g1"), ("X-Remote-Group", "g2"), ("X-Other-Group", "g3"),
    ("X-Remote-Uid", "u1"), ("X-Remote-Extra-Scopes", "a"), ("X-Remote-Extra-Scopes", "b"),
    ("X-E-Acme%2Fx", "c"), ("X-E-bad%zz", "d"),
)  # fmt: skip
BOB = {
    "username": "bob",
    "uid": "u1",
    "groups": ["g1", "g2", "g3", AUTHENTICATED],
    "extra": {"acme/x": ["c"], "bad%zz": ["d"], "scopes": ["a", "b"]},
}
ALICE = {"username": "alice", "uid": "1001", "groups": ["devs", "testers", AUTHENTICATED]}
CAROL = {"username": "carol", "groups": ["dev", "ops", AUTHENTICATED]}


@dataclass
class Fleet:
    """A server, and its certificate authorities for clients and proxies by name."""

    server: Server
    authorities: dict[str, ClientAuthority]

    def send_review(
        self, signer: str, subject: Subject, headers: tuple[tuple[str, str], ...], token: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        """Send a SelfSubjectReview; return status code, user, and hash of the sent certificate.

        The user is the one in the review.
        """
        file = self.authorities[signer].issue(subject) if signer else None
        address = urlsplit(self.server.url)
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=dialling(file))
        body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
        connection.putrequest("POST", REVIEWS)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers):
            connection.putheader(name, value)
        if token:
            connection.putheader("Authorization", f"Bearer {token}")
        connection.endheaders(body)
        answer = connection.getresponse()
        status, seen = answer.status, json.loads(answer.read())
        connection.close()
        sent = ssl.PEM_cert_to_DER_cert(file.read_text().partition("-----BEGIN PRIVATE")[0]) if file else b""
        return status, seen["status"]["userInfo"] if status == 201 else {}, hashlib.sha256(sent).hexdigest()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Fleet]:
    """A server that trusts two proxies."""
    directory = tmp_path_factory.mktemp("proxies")
    authorities = {name: ClientAuthority(directory, name) for name in ("clients", "proxies")}
    (directory / "tokens.csv").write_text('sesame,alice,1001,"devs,testers"\n')
    flags = [
        "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/proxies",
        f"--token-auth-file={directory / 'tokens.csv'}", f"--client-ca-file={authorities['clients'].file}",
        f"--requestheader-client-ca-file={authorities['proxies'].file}",
        "--requestheader-allowed-names=front,second", "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-username-headers=X-Remote-User,X-Other-User",
        "--requestheader-group-headers=X-Remote-Group,X-Other-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-,X-E-",
    ]  # fmt: skip
    with running_server(flags, directory) as server:
        yield Fleet(server, authorities)


FRONT: Subject = ((CN, "front"),)
PERSON: Subject = ((CN, "carol"), (ORG, "dev"), (ORG, "ops"))


def user_of(user: str, *groups: str) -> dict[str, Any]:
    return {"username": user, "groups": [*groups, AUTHENTICATED]}


CASES: list[tuple[str, str, Subject, tuple[tuple[str, str], ...], str, dict[str, Any] | None]] = [
    ("headers alone", "", (), TOLD, "", None),
    ("headers beside a token", "", (), TOLD, "sesame", ALICE),
    ("a certificate", "clients", PERSON, (), "", CAROL),
    ("a certificate before a token", "clients", PERSON, (), "sesame", CAROL),
    ("a certificate before a wrong token", "clients", PERSON, (), "wrong", CAROL),
    ("headers of a user", "clients", PERSON, TOLD, "", CAROL),
    ("headers of a user of a proxy's name", "clients", FRONT, TOLD, "", user_of("front")),
    ("a certificate with a uid", "clients", ((CN, "u"), (UID, "42")), (), "", {**user_of("u"), "uid": "42"}),
    ("a certificate with two uids", "clients", ((CN, "u"), (UID, "42"), (UID, "43")), (), "", None),
    ("two uids and a token", "clients", ((CN, "u"), (UID, "42"), (UID, "43")), (), "sesame", ALICE),
    ("a certificate with two names", "clients", ((CN, "first"), (CN, "last")), (), "", user_of("last")),
    ("a certificate without a name", "clients", ((ORG, "dev"),), (), "", None),
    ("no name and a token", "clients", ((ORG, "dev"),), (), "sesame", ALICE),
    ("a proxy's own requests", "proxies", FRONT, (), "", None),
    ("a proxy's own token", "proxies", FRONT, (), "sesame", ALICE),
    ("a proxy's wrong token", "proxies", FRONT, (), "wrong", None),
    ("a proxy", "proxies", FRONT, TOLD, "", BOB),
    ("a proxy that passes a token on", "proxies", FRONT, TOLD, "sesame", BOB),
    ("a proxy that passes a wrong token on", "proxies", FRONT, TOLD, "wrong", BOB),
    ("the second header", "proxies", FRONT, (("X-Other-User", "carl"),), "", user_of("carl")),
    ("the first header wins", "proxies", FRONT, (("X-Other-User", "c"), ("X-Remote-User", "b")), "", user_of("b")),
    ("an empty header is skipped", "proxies", FRONT, (("X-Other-User", "c"), ("X-Remote-User", "")), "", user_of("c")),
    ("a header twice", "proxies", FRONT, (("X-Remote-User", "b"), ("X-Remote-User", "c")), "", user_of("b")),
    ("an empty group", "proxies", FRONT, (("X-Remote-User", "b"), ("X-Remote-Group", "")), "", user_of("b")),
    ("the anonymous user", "proxies", FRONT,
     (("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")), "",
     {"username": "system:anonymous", "groups": ["system:unauthenticated"]}),
    ("groups alone", "proxies", FRONT, (("X-Remote-Group", "g"),), "", None),
    ("any case", "proxies", FRONT, (("x-remote-user", "b"), ("x-REMOTE-extra-FooBar", "V")), "",
     {**user_of("b"), "extra": {"foobar": ["V"]}}),
    ("impersonation through a proxy", "proxies", FRONT, (*TOLD, ("Impersonate-User", "zed")), "", user_of("zed")),
    ("a proxy that is not allowed", "proxies", ((CN, "other"),), TOLD, "", None),
    ("the token of a proxy that is not allowed", "proxies", ((CN, "other"),), TOLD, "sesame", ALICE),
]  # fmt: skip


@pytest.mark.rows("AUT-001", "AUT-005")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_authenticated_user_of_a_request(fleet: Fleet, case: tuple[Any, ...]) -> None:
    _, signer, subject, headers, token, wanted = case
    status, user, digest = fleet.send_review(signer, subject, headers, token)
    if wanted is None:
        assert status == 401
        return
    if signer == "clients" and wanted is not ALICE:
        wanted = {**wanted, "extra": {CREDENTIAL: [f"X509SHA256={digest}"]}}
    assert (status, user) == (201, wanted)


@pytest.mark.rows("AUT-001")
def test_cached_read_through_a_proxy_needs_a_user_header(fleet: Fleet) -> None:
    path = "/api/v1/namespaces/default?resourceVersion=0"
    tls = dialling(fleet.authorities["proxies"].issue(FRONT))
    assert Client(fleet.server.url, {"X-Remote-User": "bob"}, tls).get(path).status == 200
    assert Client(fleet.server.url, {}, tls).get(path).status == 401


@pytest.mark.differs("a page of any origin may use what its browser lends it")
@pytest.mark.parametrize(("origin", "code"), [("https://elsewhere.example.com", 403), ("", 101)])
def test_proxied_websocket_of_another_origin_is_refused(fleet: Fleet, origin: str, code: int) -> None:
    tls = dialling(fleet.authorities["proxies"].issue(FRONT))
    headers = {"X-Remote-User": "bob", "Origin": origin or fleet.server.url, "Authorization": "Bearer anything"}
    assert handshake(fleet.server, tls, headers) == code


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("signer", "name", "wanted"), [("proxies", "front", "bob"), ("clients", "carol", "carol")])
def test_resumed_tls_session_keeps_the_user(
    fleet: Fleet, newest: ssl.TLSVersion, signer: str, name: str, wanted: str
) -> None:
    tls = dialling(fleet.authorities[signer].issue(((CN, name),)))
    tls.maximum_version = newest
    address, session, seen = urlsplit(fleet.server.url), None, []
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
    head = f"POST {REVIEWS} HTTP/1.1\r\nHost: a\r\nX-Remote-User: bob\r\nContent-Type: application/json\r\n"
    for _ in range(3):
        with (
            socket.create_connection((address.hostname, address.port)) as plain,
            tls.wrap_socket(plain, session=session) as secure,
        ):
            secure.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = b"".join(iter(lambda: secure.recv(65536), b""))
            session = secure.session
        seen.append(json.loads(answer.partition(b"\r\n\r\n")[2])["status"]["userInfo"]["username"])
    assert seen == [wanted] * 3


@pytest.mark.rows("AUT-001")
def test_shared_client_and_proxy_ca_requires_allowed_names(tmp_path: Path) -> None:
    authority = ClientAuthority(tmp_path, "both")
    flags = [f"--client-ca-file={authority.file}", f"--requestheader-client-ca-file={authority.file}"]
    command = [*SERVE, "--port=0", f"--data-dir={tmp_path}", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "--requestheader-allowed-names must be specified" in done.stderr


TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


def test_configmap_publishes_client_and_proxy_cas(fleet: Fleet) -> None:
    """Aggregated API servers read the CAs from this configmap.

    An example is the visibility server of Kueue.
    """
    headers = {"Authorization": "Bearer sesame"}
    api = Client(fleet.server.url, headers, dialling())
    found = api.get(TRUST).expect(200)["data"]
    own = {
        "client-ca-file": fleet.authorities["clients"].file.read_text(),
        "requestheader-client-ca-file": fleet.authorities["proxies"].file.read_text(),
        "requestheader-allowed-names": '["front","second"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-","X-E-"]',
        "requestheader-group-headers": '["X-Remote-Group","X-Other-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-username-headers": '["X-Remote-User","X-Other-User"]',
    }
    assert found == own
    api.patch(TRUST, {"data": {"requestheader-allowed-names": '["theirs"]', "client-ca-file": None}}).expect(200)
    until(lambda: api.get(TRUST).json["data"].get("client-ca-file") == own["client-ca-file"], "the CA is added again")
    assert api.get(TRUST).expect(200)["data"]["requestheader-allowed-names"] == '["theirs","front","second"]'
    api.delete(TRUST).expect(200)
    until(lambda: api.get(TRUST).status == 200, "the configmap is created again")
    assert api.get(TRUST).expect(200)["data"] == own
