"""Effects of flags on one server: anonymous users, audiences, plug-ins, concurrency limits."""

from __future__ import annotations

import secrets
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, until
from tests.support.processes import Etcd, Server, running_etcd, running_server

ROLES = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
DEFAULT = "/api/v1/namespaces/default"
FLAGS = (
    "--port=0", "--authorization-mode=RBAC", "--anonymous-auth", "--api-audiences=vault,apiext",
    "--max-requests-inflight=1", "--max-mutating-requests-inflight=1",
    "--enable-admission-plugins=NamespaceLifecycle,NodeRestriction,OwnerReferencesPermissionEnforcement",
    "--min-request-timeout=1", "--tls-min-version=VersionTLS13", "--service-account-max-token-expiration=1h",
    "--enable-garbage-collector=false",
)  # fmt: skip
Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that tests may pause."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as started:
        yield started


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory, etcd: Etcd) -> Iterator[Server]:
    """A server on that etcd."""
    with running_server([*FLAGS, f"--etcd-servers={etcd.url}"], tmp_path_factory.mktemp("flagged")) as server:
        yield server


@pytest.fixture(scope="module")
def trust(flagged: Server) -> ssl.SSLContext:
    """A TLS context with the server's CA."""
    assert flagged.log is not None
    return ssl.create_default_context(cafile=str(flagged.log.parent / "pki" / "ca.crt"))


@pytest.fixture
def connect(flagged: Server, trust: ssl.SSLContext) -> Connect:
    """A function that returns a client with a token; the default is the admin's token."""
    config = yaml.safe_load(Path(flagged.ready["kubeconfig"]).read_text())
    admin = config["users"][0]["user"]["token"]

    def connected(token: str = admin) -> Client:
        return Client(flagged.url, {"Authorization": f"Bearer {token}"} if token else {}, trust)

    return connected


@pytest.mark.rows("AUT-001", "AUT-002", "AUT-003", "ERR-18")
@pytest.mark.parametrize("query", ["", "?resourceVersion=0"])
def test_request_without_token_is_authorized_as_anonymous(connect: Connect, query: str) -> None:
    admin, stranger, name = connect(), connect(""), f"strangers-{secrets.token_hex(4)}"
    refused = stranger.get(DEFAULT + query)
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert refused.json["message"] == (
        'namespaces "default" is forbidden: User "system:anonymous" cannot get resource "namespaces" in API group "" '
        'in the namespace "default"'
    )
    rules = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]
    kind, group = {"kind": "ClusterRole", "name": name}, "rbac.authorization.k8s.io"
    strangers = {"kind": "Group", "name": "system:unauthenticated", "apiGroup": group}
    bound = {"metadata": {"name": name}, "roleRef": {**kind, "apiGroup": group}, "subjects": [strangers]}
    admin.post(f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": rules}).expect(201)
    admin.post(f"{ROLES}/clusterrolebindings", bound).expect(201)
    try:
        stranger.get(DEFAULT + query).expect(200)
        assert stranger.get("/api/v1/namespaces" + query).status == 403, "no more than they may"
        assert connect("wrong").get(DEFAULT + query).expect(401)["reason"] == "Unauthorized"
    finally:
        admin.delete(f"{ROLES}/clusterrolebindings/{name}").expect(200)
    assert stranger.get(DEFAULT + query).status == 403


@pytest.mark.rows("AUT-001")
def test_token_authenticates_only_for_server_audiences(connect: Connect) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)

    def token(*audiences: str) -> str:
        made = admin.post(f"{ACCOUNTS}/{name}/token", {"spec": {"audiences": list(audiences)}}).expect(201)
        assert made["spec"]["audiences"] == (list(audiences) or ["vault", "apiext"])
        text: str = made["status"]["token"]
        return text

    issuer = "https://kubernetes.default.svc"  # the default audience of tokens
    for audiences, counts in (((), True), (("vault",), True), (("apiext", "x"), True), ((issuer,), False)):
        given = token(*audiences)
        assert connect(given).get("/api").status == (200 if counts else 401), audiences
        seen = admin.post(REVIEWS, {"spec": {"token": given}}).expect(201)["status"]
        assert seen.get("authenticated", False) is counts
        if counts:
            assert seen["audiences"] == [each for each in ("vault", "apiext") if each in (audiences or ("vault", each))]
        else:
            text = f'token audiences ["{issuer}"] is invalid for the target audiences ["vault" "apiext"]'
            assert seen["error"] == f"[invalid bearer token, {text}]"


@pytest.mark.rows("ADM-001")
def test_enable_plugins_enables_known_and_warns_of_unknown(flagged: Server, connect: Connect) -> None:
    made = connect().post("/api/v1/namespaces/gone/configmaps", {"metadata": {"name": "a"}})
    assert (made.status, made.json["message"]) == (404, 'namespaces "gone" not found')
    assert flagged.log is not None
    assert flagged.log.read_text().count("--enable-admission-plugins: apiext does not have NodeRestriction") == 1


@pytest.mark.rows("AUT-001")
def test_older_tls_is_refused(flagged: Server, trust: ssl.SSLContext) -> None:
    older = ssl.create_default_context()
    older.load_verify_locations(
        cadata="".join(ssl.DER_cert_to_PEM_cert(it) for it in trust.get_ca_certs(binary_form=True))
    )
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        Client(flagged.url, {}, older).get("/livez")
    assert Client(flagged.url, {}, trust).get("/livez").status == 200


def test_token_lifetime_is_limited_to_max_token_expiration(connect: Connect) -> None:
    admin, name = connect(), f"short-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    for asked, given in ((172_800, 3_600), (3_600, 3_600), (600, 600)):
        made = admin.post(f"{ACCOUNTS}/{name}/token", {"spec": {"expirationSeconds": asked}})
        assert made.expect(201)["spec"]["expirationSeconds"] == given
        shortened = [f'299 - "requested expiration of {asked} seconds shortened to {given} seconds"']
        assert made.warnings == (shortened if asked > given else [])


def test_disabled_garbage_collector_keeps_dependents(connect: Connect) -> None:
    admin, name = connect(), f"kept-{secrets.token_hex(4)}"
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": f"u-{name}"}
    body = {"metadata": {"name": name, "ownerReferences": [reference]}}
    admin.post(f"{DEFAULT}/configmaps", body).expect(201)
    pause(1)  # a garbage collector would delete it within this second
    admin.get(f"{DEFAULT}/configmaps/{name}").expect(200)


CANNOT_BLOCK = (
    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"
)
CANNOT_DELETE = "cannot set an ownerRef on a resource you can't delete: , <nil>"
EDIT = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "update", "patch"]}
DELETE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}
FINALIZE = {"apiGroups": [""], "resources": ["secrets/finalizers"], "verbs": ["update"]}
FINALIZE_ALL = {"apiGroups": ["*"], "resources": ["*/finalizers"], "verbs": ["update"]}
OWNED = [
    # permissions of the user, operation, blockOwnerDeletion, (apiVersion, kind) of the owner, message
    ([], "create", None, ("v1", "Secret"), ""),
    ([], "create", False, ("v1", "Secret"), ""),
    ([], "create", True, ("v1", "Secret"), CANNOT_BLOCK),
    ([FINALIZE], "create", True, ("v1", "Secret"), ""),
    ([FINALIZE], "create", True, ("v1", "ConfigMap"), CANNOT_BLOCK),
    ([FINALIZE_ALL], "create", True, ("odd/v1", "Odd"), ""),
    ([], "create", True, ("odd/v1", "Odd"), "cannot set blockOwnerDeletion in this case because cannot find "
     'RESTMapping for APIVersion odd/v1 Kind Odd: no matches for kind "Odd" in version "odd/v1"'),
    ([], "update", None, ("v1", "Secret"), CANNOT_DELETE),
    ([DELETE], "update", None, ("v1", "Secret"), ""),
    ([DELETE], "update", True, ("v1", "Secret"), CANNOT_BLOCK),
    ([DELETE, FINALIZE], "update", True, ("v1", "Secret"), ""),
]  # fmt: skip


@pytest.mark.rows("ADM-001")
@pytest.mark.parametrize(("allowed", "operation", "blocks", "kind", "text"), OWNED)
def test_owner_references_require_permissions(
    connect: Connect, allowed: list[object], operation: str, blocks: bool | None, kind: tuple[str, str], text: str
) -> None:
    admin, name = connect(), f"owned-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    admin.post(f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": [EDIT, *allowed]}).expect(201)
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    admin.post(
        f"{ROLES}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
    ).expect(201)
    token = admin.post(f"{ACCOUNTS}/{name}/token", {"spec": {"audiences": ["apiext"]}}).expect(201)["status"]["token"]
    user, path = connect(token), f"{DEFAULT}/configmaps"
    reference = {"apiVersion": kind[0], "kind": kind[1], "name": "owner", "uid": f"u-{name}"}
    if blocks is not None:
        reference["blockOwnerDeletion"] = blocks  # type: ignore[assignment]
    body = {"metadata": {"name": name, "ownerReferences": [reference]}}
    if operation == "update":
        admin.post(path, {"metadata": {"name": name}}).expect(201)
        answer = user.put(f"{path}/{name}", body)
    else:
        answer = user.post(path, body)
    if text:
        assert answer.expect(403)["message"] == f'configmaps "{name}" is forbidden: {text}'
    else:
        assert answer.status in (200, 201), answer.text
        again = user.patch(f"{path}/{name}", {"data": {"a": "b"}})  # unchanged owners need no permission
        assert again.status == 200, again.text


@pytest.mark.rows("RV-014")
def test_watch_without_timeout_ends_after_min_request_timeout(connect: Connect) -> None:
    began = time.monotonic()
    with connect().watch(f"{DEFAULT}/configmaps", resourceVersion=0) as watch:
        events = [event["type"] for event in watch]
    assert time.monotonic() - began >= 1
    assert "ERROR" not in events


@pytest.mark.rows("LIM-001")
@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
def test_requests_over_max_inflight_get_429(etcd: Etcd, connect: Connect, writes: bool) -> None:
    admin, path = connect(), f"{DEFAULT}/configmaps"

    def ask() -> tuple[int, str]:
        answer = admin.post(path, {"metadata": {"generateName": "a-"}}) if writes else admin.get(path)
        return answer.status, answer.headers.get("retry-after", "")

    def get_two_responses() -> list[tuple[int, str]]:
        with ThreadPoolExecutor(2) as pool:
            etcd.process.send_signal(signal.SIGSTOP)  # so that the first of two requests waits
            try:
                asked = [pool.submit(ask) for _ in range(2)]
                wait(asked, timeout=20, return_when=FIRST_COMPLETED)
            finally:
                etcd.process.send_signal(signal.SIGCONT)
            return sorted(each.result() for each in asked)

    wanted = [(201 if writes else 200, ""), (429, "1")]
    until(lambda: get_two_responses() == wanted, "one is let in and one is not")  # a busy machine needs several tries
    assert ask() == wanted[0]
