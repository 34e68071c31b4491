"""Tokens of service accounts: requests, use, reviews, and their end with the account."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils

from apiext.conformance.support.http_client import Client
from tests.support.processes import Etcd, running_server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
REVIEWS = "/apis/authentication.k8s.io/v1"
pytestmark = pytest.mark.rows("AUT-001", "AUT-002")


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Any]:
    """A server with https, and a function that returns a client with a token.

    The default is the admin's token.
    """
    directory = tmp_path_factory.mktemp("tokens")
    flags = ["--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/tokens-{secrets.token_hex(4)}"]
    with running_server(flags, directory) as server:
        config = yaml.safe_load(Path(server.ready["kubeconfig"]).read_text())
        admin = config["users"][0]["user"]["token"]
        tls = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))

        def connected(token: str = admin) -> Client:
            return Client(server.url, {"Authorization": f"Bearer {token}"}, tls)

        yield connected


def request(audiences: list[str] | None = None, seconds: int | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"audiences": audiences}
    return {"kind": "TokenRequest", "spec": spec if seconds is None else {**spec, "expirationSeconds": seconds}}


def test_token_is_valid_until_its_account_is_deleted(connect: Any) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    made = admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    answer = admin.post(f"{ACCOUNTS}/{name}/token", request()).expect(201)
    assert (answer["kind"], answer["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert answer["metadata"]["uid"] == made["metadata"]["uid"]
    assert answer["spec"] == {
        "audiences": ["https://kubernetes.default.svc"],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    token = answer["status"]["token"]
    me = connect(token).post(f"{REVIEWS}/selfsubjectreviews", {"kind": "SelfSubjectReview"}).expect(201)
    info = me["status"]["userInfo"]
    assert (info["username"], info["uid"]) == (f"system:serviceaccount:default:{name}", made["metadata"]["uid"])
    assert "system:serviceaccounts:default" in info["groups"]
    seen = admin.post(f"{REVIEWS}/tokenreviews", {"kind": "TokenReview", "spec": {"token": token}}).expect(201)[
        "status"
    ]
    assert (seen["authenticated"], seen["user"]["username"]) == (True, info["username"])
    admin.delete(f"{ACCOUNTS}/{name}").expect(200)
    assert connect(token).get("/api/v1/namespaces").status == 401
    gone = admin.post(f"{REVIEWS}/tokenreviews", {"kind": "TokenReview", "spec": {"token": token}}).expect(201)[
        "status"
    ]
    assert gone == {"user": {}, "error": f'[invalid bearer token, serviceaccounts "{name}" not found]'}


def test_token_review_parses_tokens_like_the_header(connect: Any) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    of_account = admin.post(f"{ACCOUNTS}/{name}/token", request()).expect(201)["status"]["token"]
    of_admin = connect.__defaults__[0]
    for token in of_account, of_admin:
        for sent in f"{token}\n", f"{token} ", f"{token} and more":
            seen = admin.post(f"{REVIEWS}/tokenreviews", {"kind": "TokenReview", "spec": {"token": sent}})
            assert seen.expect(201)["status"].get("authenticated"), sent
        for sent in f" {token}", f"  {token}", "  ":
            seen = admin.post(f"{REVIEWS}/tokenreviews", {"kind": "TokenReview", "spec": {"token": sent}})
            assert seen.expect(201)["status"] == {"user": {}}
            assert "warning" not in seen.headers, "it is no header"
        seen = admin.post(f"{REVIEWS}/tokenreviews", {"kind": "TokenReview", "spec": {"token": f"\t{token}"}})
        assert seen.expect(201)["status"] == {"user": {}, "error": "invalid bearer token"}


def test_published_keys_verify_a_token(connect: Any) -> None:
    admin = connect()
    configuration = admin.get("/.well-known/openid-configuration")
    assert configuration.headers["cache-control"] == "public, max-age=3600"
    assert configuration.json == {
        "issuer": "https://kubernetes.default.svc",
        "jwks_uri": f"{admin.url}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    keys = admin.get("/openid/v1/jwks")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    (key,) = keys.json["keys"]
    x, y = (int.from_bytes(plain(key[name])) for name in "xy")
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    signed, _, signature = new_token(admin).rpartition(".")
    r, s = int.from_bytes(plain(signature)[:32]), int.from_bytes(plain(signature)[32:])
    public.verify(utils.encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))


def new_token(admin: Client) -> str:
    """Create a service account and return a token of it."""
    name = f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    token: str = admin.post(f"{ACCOUNTS}/{name}/token", request()).expect(201)["status"]["token"]
    return token


def plain(text: str) -> bytes:
    """Decode base64 for URLs without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize(
    ("method", "path", "accept", "code"),
    [
        ("GET", "/openid/v1/jwks/", "*/*", 200),
        ("GET", "/.well-known/openid-configuration/", "application/json", 200),
        ("GET", "/openid/v1/jwks", "application/json", 406),
        ("GET", "/.well-known/openid-configuration", "application/yaml", 406),
        ("POST", "/openid/v1/jwks", "*/*", 405),
        ("HEAD", "/.well-known/openid-configuration", "*/*", 405),
        ("GET", "/openid/v1/jwks/x", "*/*", 404),
        ("GET", "/openid/v1", "*/*", 404),
    ],
)
def test_openid_endpoints_check_method_and_media_type(
    connect: Any, method: str, path: str, accept: str, code: int
) -> None:
    answer = connect().request(method, path, headers={"Accept": accept})
    assert answer.status == code
    if path.endswith("/x"):
        assert answer.json["message"] == "the server could not find the requested resource", "no list of paths"


def test_openid_configuration_needs_authentication(connect: Any) -> None:
    assert connect("none").get("/.well-known/openid-configuration").status == 401


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--service-account-jwks-uri=https://keys.example.com/jwks"], "https://keys.example.com/jwks"),
        (["--service-account-issuer=http://plain.example.com"], None),  # upstream: the specification allows only https
        (["--service-account-issuer=https://example.com?a=b"], None),
        (["--service-account-issuer=https://["], None),
    ],
)
def test_issuer_flags_enable_openid_discovery(
    tmp_path: Path, own_etcd: Etcd, flags: list[str], told: str | None
) -> None:
    given = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/i-{secrets.token_hex(4)}"]
    with running_server([*given, *flags], tmp_path) as server:
        api = Client(server.url)
        found = api.get("/.well-known/openid-configuration")
        assert found.status == (200 if told else 404)
        assert found.json.get("jwks_uri") == told
        assert ("/openid/v1/jwks" in api.get("/").json["paths"]) is bool(told)


def test_tokens_stay_valid_after_key_and_issuer_change(tmp_path: Path, own_etcd: Etcd) -> None:
    given = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/k-{secrets.token_hex(4)}"]
    old, new = tmp_path / "old", tmp_path / "new"
    for place in (old, new):
        place.mkdir()
    with running_server(given, old) as server:
        api = Client(server.url)
        api.post(ACCOUNTS, {"metadata": {"name": "sa"}}).expect(201)
        token = api.post(f"{ACCOUNTS}/sa/token", request()).expect(201)["status"]["token"]
        (first,) = api.get("/openid/v1/jwks").json["keys"]
    own = old / "pki" / "service-accounts.key"
    other = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "rsa.key").write_bytes(other)
    former = [f"--service-account-key-file={own}", f"--service-account-key-file={tmp_path / 'rsa.key'}"]
    issuers = [
        "--service-account-issuer=https://new.example.com",
        "--service-account-issuer=https://kubernetes.default.svc",
    ]
    review = {"kind": "TokenReview", "spec": {"token": token}}
    with running_server([*given, *former, *issuers], new) as server:
        api = Client(server.url)
        seen = api.post(f"{REVIEWS}/tokenreviews", review).expect(201)["status"]
        assert (seen["authenticated"], seen["user"]["username"]) == (True, "system:serviceaccount:default:sa")
        before, _, signing = api.get("/openid/v1/jwks").json["keys"]
        assert (before, signing["kid"] != first["kid"]) == (first, True)
        shown = api.get("/.well-known/openid-configuration").expect(200)
        assert shown["issuer"] == "https://new.example.com"
        assert shown["id_token_signing_alg_values_supported"] == ["ES256", "RS256"]
        made = api.post(f"{ACCOUNTS}/sa/token", request()).expect(201)
        assert made["spec"]["audiences"] == ["https://new.example.com", "https://kubernetes.default.svc"]


def test_token_for_other_audiences_is_refused(connect: Any) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    token = admin.post(f"{ACCOUNTS}/{name}/token", request(["vault"])).expect(201)["status"]["token"]
    assert connect(token).get("/api/v1/namespaces").status == 401
    asked = {"kind": "TokenReview", "spec": {"token": token, "audiences": ["vault", "other"]}}
    seen = admin.post(f"{REVIEWS}/tokenreviews", asked).expect(201)["status"]
    assert (seen["authenticated"], seen["audiences"]) == (True, ["vault"])


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize(
    ("seconds", "bound"),
    [(600, ""), (2**32, ""), (599, "less than 10 minutes"), (2**32 + 1, "larger than 2^32 seconds")],
)
def test_token_expiration_has_bounds(connect: Any, seconds: int, bound: str) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    answer = admin.post(f"{ACCOUNTS}/{name}/token", request(seconds=seconds))
    if bound:
        assert f"Invalid value: {seconds}: may not specify a duration {bound}" in answer.expect(422)["message"]
    else:
        assert answer.expect(201)["spec"]["expirationSeconds"] == seconds


def test_token_is_invalid_after_its_bound_secret_is_deleted(connect: Any) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    made = admin.post(SECRETS, {"metadata": {"name": name}}).expect(201)
    wanted = request()
    wanted["spec"]["boundObjectRef"] = {"kind": "Secret", "apiVersion": "v1", "name": name}
    answer = admin.post(f"{ACCOUNTS}/{name}/token", wanted).expect(201)
    assert answer["spec"]["boundObjectRef"] == wanted["spec"]["boundObjectRef"]
    wanted["spec"]["boundObjectRef"]["uid"] = made["metadata"]["uid"]
    admin.post(f"{ACCOUNTS}/{name}/token", wanted).expect(201)
    token = answer["status"]["token"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["kubernetes.io"]["secret"] == {"name": name, "uid": made["metadata"]["uid"]}
    assert connect(token).get("/api/v1/namespaces").status == 200

    def review_error() -> str:
        asked = {"kind": "TokenReview", "spec": {"token": token}}
        found: str = admin.post(f"{REVIEWS}/tokenreviews", asked).expect(201)["status"].get("error", "")
        return found

    assert review_error() == ""
    admin.delete(f"{SECRETS}/{name}").expect(200)
    assert connect(token).get("/api/v1/namespaces").status == 401
    assert review_error() == "[invalid bearer token, service account token has been invalidated]"
    other = admin.post(SECRETS, {"metadata": {"name": name}}).expect(201)["metadata"]["uid"]
    assert connect(token).get("/api/v1/namespaces").status == 401
    text = f"does not match service account secret ref claim ({made['metadata']['uid']})"
    assert review_error() == f"[invalid bearer token, secret UID ({other}) {text}]"
    refused = admin.post(f"{ACCOUNTS}/{name}/token", wanted).expect(409)
    text = f"the UID in the bound object reference ({made['metadata']['uid']}) does not match the UID in record. "
    assert refused["message"] == (
        f'Operation cannot be fulfilled on Secret "{name}": {text}The object might have been deleted and then recreated'
    )
    assert refused["details"] == {"name": name, "kind": "Secret"}


def test_token_review_reports_why_a_token_is_invalid(connect: Any) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    token = admin.post(f"{ACCOUNTS}/{name}/token", request(["a", "b"])).expect(201)["status"]["token"]

    def review_error(text: str, *audiences: str) -> str:
        spec = {"token": text, "audiences": list(audiences)}
        answer = admin.post(f"{REVIEWS}/tokenreviews", {"kind": "TokenReview", "spec": spec})
        found: str = answer.expect(201)["status"].get("error", "")
        return found

    assert review_error(token, "a", "c") == ""
    text = "is invalid for the target audiences"
    assert (
        review_error(token)
        == f'[invalid bearer token, token audiences ["a" "b"] {text} ["https://kubernetes.default.svc"]]'
    )
    assert review_error(token, "c") == f'[invalid bearer token, token audiences ["a" "b"] {text} ["c"]]'
    head, claims, signature = token.split(".")
    forged = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
    assert review_error(f"{head}.{claims}.{signature[:-4]}AAAA") == forged
    other = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"x"}').rstrip(b"=").decode()
    assert review_error(f"{other}.{claims}.{signature}") == "[invalid bearer token, invalid signature, no keys found]"
    for nothing in ("x", "a.b.c", f"{head}.{claims}.####", f"{token}.x", f"{head}=.{claims}.{signature}"):
        assert review_error(nothing) == "invalid bearer token", nothing
    admin.delete(f"{ACCOUNTS}/{name}").expect(200)
    uid = admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)["metadata"]["uid"]
    was = json.loads(base64.urlsafe_b64decode(claims + "=="))["kubernetes.io"]["serviceaccount"]["uid"]
    assert (
        review_error(token, "a") == f"[invalid bearer token, service account UID ({uid}) does not match claim ({was})]"
    )


@pytest.mark.rows("ERR-09")
def test_invalid_token_requests_are_refused(connect: Any) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    assert admin.post(f"{ACCOUNTS}/{name}/token", request()).status == 404
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    short = admin.post(f"{ACCOUNTS}/{name}/token", request(seconds=60)).expect(422)
    wanted = "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"
    assert wanted in short["message"]
    other = admin.post(f"{ACCOUNTS}/{name}/token", {"kind": "ConfigMap", "apiVersion": "v1"})
    assert other.status == 400
    assert admin.get(f"{ACCOUNTS}/{name}/token").status == 405
    entry = {it["name"]: it for it in admin.get("/api/v1").expect(200)["resources"]}["serviceaccounts/token"]
    assert (entry["kind"], entry["group"], entry["verbs"]) == ("TokenRequest", "authentication.k8s.io", ["create"])


@pytest.mark.rows("AUT-003", "AUT-005", "ERR-18")
def test_access_reviews_decide_as_requests(tmp_path: Path, own_etcd: Etcd) -> None:
    (tmp_path / "tokens.csv").write_text("sesame,alice,1001\n")
    flags = [
        "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/deny-{secrets.token_hex(4)}",
        "--authorization-mode=AlwaysDeny", f"--token-auth-file={tmp_path / 'tokens.csv'}",
    ]  # fmt: skip
    with running_server(flags, tmp_path / "data") as server:
        tls = ssl.create_default_context(cafile=str(tmp_path / "data" / "pki" / "ca.crt"))
        config = yaml.safe_load(Path(server.ready["kubeconfig"]).read_text())
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        admin, alice = Client(server.url, headers, tls), Client(server.url, {"Authorization": "Bearer sesame"}, tls)
        refused = alice.get("/api/v1/namespaces/default/secrets").expect(403)
        text = 'User "alice" cannot list resource "secrets" in API group "" in the namespace "default"'
        assert refused["message"] == f"secrets is forbidden: {text}: Everything is forbidden."
        as_joe = admin.request("GET", "/api/v1/namespaces", headers={"Impersonate-User": "joe"}).expect(403)
        assert 'User "joe" cannot list resource "namespaces"' in as_joe["message"]
        own = alice.request("GET", "/api/v1/namespaces", headers={"Impersonate-User": "admin"}).expect(403)
        assert 'User "alice" cannot impersonate-on:user-info:list resource "namespaces"' in own["message"]
        asked = {"resourceAttributes": {"verb": "list", "resource": "secrets"}, "user": "alice"}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = admin.post(path, {"kind": "SubjectAccessReview", "spec": asked}).expect(201)
        assert answer["status"] == {"allowed": False, "reason": "Everything is forbidden."}
        masters = {**asked, "groups": ["system:masters"]}
        assert admin.post(path, {"kind": "SubjectAccessReview", "spec": masters}).expect(201)["status"]["allowed"]


@pytest.mark.parametrize("with_node", [True, False])
def test_token_is_invalid_after_its_bound_pod_is_deleted(connect: Any, with_node: bool) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    pods, nodes, reviews = "/api/v1/namespaces/default/pods", "/api/v1/nodes", f"{REVIEWS}/tokenreviews"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    admin.post(ACCOUNTS, {"metadata": {"name": f"{name}-other"}}).expect(201)
    spec = {"serviceAccountName": name, "nodeName": name, "containers": [{"name": "a", "image": "a"}]}
    pod = admin.post(pods, {"metadata": {"name": name}, "spec": spec}).expect(201)["metadata"]["uid"]
    node = admin.post(nodes, {"metadata": {"name": name}}).expect(201)["metadata"]["uid"] if with_node else ""
    wanted = request()
    wanted["spec"]["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod}
    refused = admin.post(f"{ACCOUNTS}/{name}-other/token", wanted).expect(400)
    text = f'cannot bind token for serviceaccount "{name}-other" to pod running with different serviceaccount name.'
    assert refused["message"] == text
    token = admin.post(f"{ACCOUNTS}/{name}/token", wanted).expect(201)["status"]["token"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["kubernetes.io"]
    assert claims["pod"] == {"name": name, "uid": pod}
    assert claims["node"] == ({"name": name, "uid": node} if with_node else {"name": name})
    status = admin.post(reviews, {"kind": "TokenReview", "spec": {"token": token}}).expect(201)["status"]
    extra = {key.partition("/")[2]: value for key, value in status["user"]["extra"].items()}
    assert extra.pop("credential-id")[0].startswith("JTI=")
    found = {"pod-name": [name], "pod-uid": [pod], "node-name": [name]}
    assert extra == (found | {"node-uid": [node]} if with_node else found)
    assert connect(token).get("/api/v1").status == 200
    if with_node:
        bound = {**wanted, "spec": {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": name}}}
        other = admin.post(f"{ACCOUNTS}/{name}/token", bound).expect(201)["status"]["token"]
        admin.delete(f"{nodes}/{name}").expect(200)
        assert connect(other).get("/api/v1").status == 401
        assert connect(token).get("/api/v1").status == 200
    admin.request("DELETE", f"{pods}/{name}?gracePeriodSeconds=0").expect(200)
    assert connect(token).get("/api/v1").status == 401


WEBHOOK = {
    "boundObjectRef": {
        "kind": "ValidatingWebhookConfiguration",
        "apiVersion": "admissionregistration.k8s.io/v1",
        "name": "v",
    }
}


@pytest.mark.parametrize(
    ("account", "body", "code", "message"),
    [
        ("-", {"spec": {"expirationSeconds": 2**32 + 1}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not '
         "specify a duration larger than 2^32 seconds"),
        ("-", {"spec": {"expirationSeconds": 599}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not '
         "specify a duration less than 10 minutes"),
        ("-", {"metadata": {"name": "x"}, "spec": {"expirationSeconds": 1}}, 422,
         'TokenRequest.authentication.k8s.io "$" is invalid: metadata.name: Invalid value: "x": must match the service '
         "account name if specified"),
        ("nosuch", {"metadata": {"name": "x"}, "spec": {}}, 422,
         'TokenRequest.authentication.k8s.io "nosuch" is invalid: metadata.name: Invalid value: "x": must match the '
         "service account name if specified"),
        ("nosuch", {"spec": {"expirationSeconds": 1}}, 404, 'serviceaccounts "nosuch" not found'),
        ("-", {"spec": {"boundObjectRef": {"kind": "X"}}}, 400, "cannot bind token to object of type /, Kind=X"),
        ("-", {"spec": {"boundObjectRef": {"kind": "Pod", "name": "p"}}}, 404, 'pods "p" not found'),
        ("-", {"spec": {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "n"}}}, 404,
         'nodes "n" not found'),
        ("-", {"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "v2", "name": "n"}}}, 404,
         'secrets "n" not found'),
        ("-", {"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "a/b/c", "name": "n"}}}, 404,
         'secrets "n" not found'),
        ("-", {"spec": {"boundObjectRef": {"kind": "Secret"}}}, 400, "Name parameter required."),
        ("-", {"spec": {"boundObjectRef": {"kind": "Node", "name": "a/b"}}}, 400,
         "Name parameter invalid: \"a/b\": may not contain '/'"),
        ("-", {"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "apps/v1", "name": "n"}}}, 400,
         "cannot bind token to object of type apps/v1, Kind=Secret"),
        ("-", {"spec": {"expirationSeconds": 1, "boundObjectRef": {"kind": "X"}}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 1: may not '
         "specify a duration less than 10 minutes"),
        ("-", {"spec": {"boundObjectRef": {"kind": "X", "apiVersion": "a/b"}}}, 400,
         "cannot bind token to object of type a/b, Kind=X"),
        ("-", {"spec": {"attestations": {"x/y": ["a"]}, "expirationSeconds": 1}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.attestations: Invalid value: {"x/y":["a"]}: '
         "attestations may only be specified with a webhook bound object reference"),
        ("-", {"spec": {"attestations": {"x": 5}}}, 400,
         'TokenRequest in version "v1" cannot be handled as a TokenRequest: json: cannot unmarshal number into '
         "Go struct field TokenRequestSpec.spec.attestations of type v1.AttestationValue"),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a", "b"], "expirationSeconds": 1}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: [spec.expirationSeconds: Invalid value: 1: may not '
         'specify a duration less than 10 minutes, spec.audiences: Invalid value: ["a","b"]: must be length 1 '
         "when bound to a webhook config, spec.attestations: Invalid value: null: webhook bound requests require "
         "exactly one admissionReviewAPIGroups attestation]"),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a"], "attestations": {"x": ["a"]}}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.attestations[x]: Unsupported value: "x": '
         'supported values: "admissionReviewAPIGroups"'),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a"], "attestations": {"admissionReviewAPIGroups": []}}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.attestations[admissionReviewAPIGroups]: Invalid '
         "value: []: must specify a single value"),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a"], "attestations": {"admissionReviewAPIGroups": [""]}}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.attestations[admissionReviewAPIGroups][0]: '
         'Invalid value: "": may not be an empty string'),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a"], "attestations": {"admissionReviewAPIGroups": ["a/b"]}}}, 422,
         'TokenRequest.authentication.k8s.io "" is invalid: spec.attestations[admissionReviewAPIGroups][0]: '
         'Invalid value: "a/b": must specify a valid API Group: a lowercase RFC 1123 subdomain must consist of '
         "lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character "
         "(e.g. 'example.com', regex used for validation is "
         "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a"], "attestations": {"admissionReviewAPIGroups": ["*"]}}}, 400,
         "cannot bind token to object of type admissionregistration.k8s.io/v1, "
         "Kind=ValidatingWebhookConfiguration (feature gate APIServerWebhookAuthenticationToken is disabled)"),
        ("-", {"spec": {**WEBHOOK, "audiences": ["a"], "attestations": {"admissionReviewAPIGroups": ["apps"]}}}, 400,
         "cannot bind token to object of type admissionregistration.k8s.io/v1, "
         "Kind=ValidatingWebhookConfiguration (feature gate APIServerWebhookAuthenticationToken is disabled)"),
    ],
)  # fmt: skip
def test_token_request_errors_follow_validation_order(
    connect: Any, account: str, body: dict[str, Any], code: int, message: str
) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    answer = admin.post(f"{ACCOUNTS}/{name if account == '-' else account}/token", {"kind": "TokenRequest", **body})
    assert (answer.status, answer.json["message"]) == (code, message.replace("$", name))


@pytest.mark.parametrize("attestations", [{}, None])
def test_a_token_request_may_have_no_attestations(connect: Any, attestations: dict[str, Any] | None) -> None:
    admin, name = connect(), f"sa-{secrets.token_hex(4)}"
    admin.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    body = {"kind": "TokenRequest", "spec": {"attestations": attestations}}
    answer = admin.post(f"{ACCOUNTS}/{name}/token?fieldValidation=Strict", body).expect(201)
    assert "attestations" not in answer["spec"]


def test_a_signed_token_with_claims_of_other_types_is_refused(tmp_path: Path, own_etcd: Etcd) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    file, form = tmp_path / "key", serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    file.chmod(0o600)

    def signed(claims: dict[str, Any]) -> str:
        parts = (json.dumps(part).encode() for part in ({"alg": "ES256"}, claims))
        text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
        return (text + b"." + base64.urlsafe_b64encode(r.to_bytes(32) + s.to_bytes(32)).rstrip(b"=")).decode()

    store = [f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/odd-{secrets.token_hex(4)}"]
    flags = ["--port=0", f"--service-account-signing-key-file={file}", *store]
    with running_server(flags, tmp_path / "server") as server:
        tls = ssl.create_default_context(cafile=str(tmp_path / "server" / "pki" / "ca.crt"))
        about = {"namespace": "default", "serviceaccount": {"name": "sa", "uid": "u"}}
        claims = {"iss": "https://kubernetes.default.svc", "aud": ["https://kubernetes.default.svc"], "jti": "j"}
        for odd in (5, True, [], ["x"], {}, {"name": "x"}):
            for changed in (
                {"kubernetes.io": odd},
                {"kubernetes.io": {**about, "namespace": odd}},
                {"kubernetes.io": {**about, "serviceaccount": odd}},
                {"kubernetes.io": {**about, "serviceaccount": {"name": odd, "uid": "u"}}},
                {"kubernetes.io": {**about, "serviceaccount": {"name": "sa", "uid": odd}}},
                {"kubernetes.io": {**about, "secret": {"name": odd, "uid": odd}}},
                {"kubernetes.io": about, "jti": odd},
                {"kubernetes.io": about, "iss": odd},
                {"kubernetes.io": about, "aud": odd},
            ):
                header = {"Authorization": f"Bearer {signed({**claims, **changed})}"}
                assert Client(server.url, header, tls).get("/api").status == 401, changed


def test_insecure_server_reviews_any_token_as_admin(api: Client) -> None:
    def review(**spec: Any) -> Any:
        body = {"kind": "TokenReview", "spec": {"token": "x", **spec}}
        return api.post(f"{REVIEWS}/tokenreviews", body).expect(201)["status"]

    known = review()
    assert (known["authenticated"], known["user"]["username"]) == (True, "admin")
    assert known["audiences"] == ["https://kubernetes.default.svc"]
    assert review(audiences=["https://elsewhere"]) == {"user": {}, "error": "invalid bearer token"}
    both = ["https://elsewhere", "https://kubernetes.default.svc"]
    assert review(audiences=both)["audiences"] == ["https://kubernetes.default.svc"]
