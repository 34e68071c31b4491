"""Token secrets of service accounts.

The server adds the token, records uses, and deletes the secret with the account.
"""

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

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, running_server

pytestmark = pytest.mark.rows("AUT-001", "KUB-004")

DEFAULT = "/api/v1/namespaces/default"
ACCOUNTS, SECRETS = f"{DEFAULT}/serviceaccounts", f"{DEFAULT}/secrets"
TYPE = "kubernetes.io/service-account-token"
NAME, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


class Tls:
    """A server with https; ``client`` returns a client with a token."""

    def __init__(self, directory: Path, url: str, kubeconfig: str) -> None:
        self.url = url
        self.authority = (directory / "pki" / "ca.crt").read_bytes()
        self._context = ssl.create_default_context(cadata=self.authority.decode())
        self.admin = self.client(yaml.safe_load(Path(kubeconfig).read_text())["users"][0]["user"]["token"])

    def client(self, token: str) -> Client:
        """Return a client with a token."""
        return Client(self.url, {"Authorization": f"Bearer {token}"}, self._context)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Tls]:
    """A server with https."""
    directory = tmp_path_factory.mktemp("kept")
    flags = ["--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/kept-{secrets.token_hex(4)}"]
    with running_server(flags, directory) as server:
        yield Tls(directory, server.url, server.ready["kubeconfig"])


@pytest.fixture
def name() -> str:
    """A new name for a service account."""
    return f"sa-{secrets.token_hex(4)}"


def secret_for(account: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"type": TYPE, "metadata": {"name": name or account, "annotations": {NAME: account}}, **more}


def wait_for_token(api: Client, name: str) -> dict[str, Any]:
    """Wait until a secret has its token, and return it."""

    def read_secret() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(f"{SECRETS}/{name}").expect(200)
        return found if UID in found["metadata"]["annotations"] else None

    return until(read_secret, "the secret has its token")


def text_of(secret: dict[str, Any], key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def is_gone(api: Client, name: str) -> bool:
    return api.get(f"{SECRETS}/{name}").status == 404


def test_token_secret_gets_a_valid_token(tls: Tls, name: str) -> None:
    api = tls.admin
    uid = api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)["metadata"]["uid"]
    api.post(SECRETS, secret_for(name, data={"more": "eA=="})).expect(201)
    secret = wait_for_token(api, name)
    assert secret["metadata"]["annotations"] == {NAME: name, UID: uid}
    assert (sorted(secret["data"]), secret["data"]["more"]) == (["ca.crt", "more", "namespace", "token"], "eA==")
    assert (text_of(secret, "ca.crt").encode(), text_of(secret, "namespace")) == (tls.authority, "default")
    token = text_of(secret, "token")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["iss"], claims["sub"]) == ("kubernetes/serviceaccount", f"system:serviceaccount:default:{name}")
    assert "exp" not in claims
    asked = {"kind": "SelfSubjectReview"}
    me = tls.client(token).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", asked).expect(201)
    assert me["status"]["userInfo"] == {
        "username": f"system:serviceaccount:default:{name}",
        "uid": uid,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
    }
    used = "kubernetes.io/legacy-token-last-used"
    until(lambda: used in api.get(f"{SECRETS}/{name}").expect(200)["metadata"].get("labels", {}), "its use is noted")
    api.delete(f"{SECRETS}/{name}").expect(200)
    assert tls.client(token).get(DEFAULT).status == 401


def test_token_secret_is_deleted_with_its_account(tls: Tls, name: str) -> None:
    api = tls.admin
    api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    api.post(SECRETS, secret_for(name)).expect(201)
    api.post(SECRETS, secret_for(f"{name}-other", f"{name}-other")).expect(201)
    token = text_of(wait_for_token(api, name), "token")
    api.delete(f"{ACCOUNTS}/{name}").expect(200)
    assert tls.client(token).get(DEFAULT).status == 401
    until(lambda: is_gone(api, name), "the secret is gone")
    api.get(f"{SECRETS}/{name}-other").expect(200)


@pytest.mark.differs("secrets for an account that is not there are deleted")
def test_a_secret_may_come_before_its_account(tls: Tls, name: str) -> None:
    api = tls.admin
    api.post(SECRETS, secret_for(name)).expect(201)
    marker = f"{name}-marker"  # the controller processes changes in order
    api.post(ACCOUNTS, {"metadata": {"name": marker}}).expect(201)
    api.post(SECRETS, secret_for(marker)).expect(201)
    wait_for_token(api, marker)
    assert "data" not in api.get(f"{SECRETS}/{name}").expect(200)
    api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    assert text_of(wait_for_token(api, name), "token")


def test_token_secret_with_another_account_uid_is_deleted(tls: Tls, name: str) -> None:
    api = tls.admin
    api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    wanted = secret_for(name)
    wanted["metadata"]["annotations"][UID] = "another"
    api.post(SECRETS, wanted).expect(201)
    until(lambda: is_gone(api, name), "the secret is gone")


def test_existing_data_of_token_secret_is_kept(tls: Tls, name: str) -> None:
    api = tls.admin
    api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    api.post(SECRETS, secret_for(name, data={"token": "bWluZQ==", "namespace": "eA==", "ca.crt": "eQ=="})).expect(201)
    secret = wait_for_token(api, name)
    assert (text_of(secret, "token"), text_of(secret, "namespace"), text_of(secret, "ca.crt")) == ("mine", "x", "y")
    plain = {"metadata": {"name": f"{name}-plain", "annotations": {NAME: name, "of": TYPE}}}
    api.post(SECRETS, plain).expect(201)
    api.post(SECRETS, secret_for(name, f"{name}-last")).expect(201)
    wait_for_token(api, f"{name}-last")
    assert "data" not in api.get(f"{SECRETS}/{name}-plain").expect(200)


def test_removed_token_is_created_again(tls: Tls, name: str) -> None:
    api = tls.admin
    api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    api.post(SECRETS, secret_for(name)).expect(201)
    first = wait_for_token(api, name)
    emptied = api.patch(f"{SECRETS}/{name}", {"data": None}).expect(200)
    assert "data" not in emptied

    def has_token() -> bool:
        return "token" in api.get(f"{SECRETS}/{name}").expect(200).get("data", {})

    until(has_token, "there is a token again")
    assert tls.client(text_of(first, "token")).get(DEFAULT).status == 401
    assert tls.client(text_of(api.get(f"{SECRETS}/{name}").expect(200), "token")).get(DEFAULT).status == 200


def test_start_processes_existing_token_secrets(tmp_path: Path, own_etcd: Etcd, name: str) -> None:
    flags = ["--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/kept-{secrets.token_hex(4)}"]
    off = "--controllers=*,-serviceaccount-token-controller"
    with running_server([*flags, off], tmp_path) as server:
        api = Tls(tmp_path, server.url, server.ready["kubeconfig"]).admin
        for account in (name, f"{name}-gone"):
            api.post(ACCOUNTS, {"metadata": {"name": account}}).expect(201)
            api.post(SECRETS, secret_for(account)).expect(201)
        api.patch(f"{SECRETS}/{name}-gone", {"metadata": {"annotations": {UID: "it had one"}}}).expect(200)
        api.delete(f"{ACCOUNTS}/{name}-gone").expect(200)
        assert "data" not in api.get(f"{SECRETS}/{name}").expect(200)
    with running_server(flags, tmp_path) as server:
        api = Tls(tmp_path, server.url, server.ready["kubeconfig"]).admin
        assert text_of(wait_for_token(api, name), "token")
        until(lambda: is_gone(api, f"{name}-gone"), "the secret is gone")


def test_server_without_tls_adds_no_ca_to_token_secret(tmp_path: Path, own_etcd: Etcd, name: str) -> None:
    prefix = f"--etcd-prefix=/kept-{secrets.token_hex(4)}"
    with running_server(["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", prefix], tmp_path) as server:
        api = Client(server.url)
        api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
        api.post(SECRETS, secret_for(name)).expect(201)
        assert sorted(wait_for_token(api, name)["data"]) == ["namespace", "token"]


# --- default accounts ---


@pytest.mark.rows("NSP-001")
def test_namespaces_get_a_default_account_if_controller_runs(tmp_path: Path, own_etcd: Etcd, name: str) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/acc-{secrets.token_hex(4)}"]
    namespaces = "/api/v1/namespaces"

    def account(api: Client, namespace: str) -> dict[str, Any] | None:
        answer = api.get(f"{namespaces}/{namespace}/serviceaccounts/default")
        return answer.json if answer.status == 200 else None

    off = [*flags, "--controllers=*,-serviceaccount-controller"]
    with running_server(off, tmp_path / "without") as server:
        api = Client(server.url)
        api.post(namespaces, {"metadata": {"name": f"{name}-before"}}).expect(201)
        api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
        assert [it["metadata"]["name"] for it in api.get("/api/v1/serviceaccounts").expect(200)["items"]] == [name]
    with running_server(flags, tmp_path / "with") as server:
        api = Client(server.url)
        for namespace in ("default", "kube-system", f"{name}-before"):
            until(lambda namespace=namespace: account(api, namespace), "there is an account")
        api.post(namespaces, {"metadata": {"name": name}}).expect(201)
        first = account(api, name)
        assert first is not None, "it is there when the create of its namespace is answered"
        api.delete(f"{namespaces}/{name}/serviceaccounts/default").expect(200)
        second = until(lambda: account(api, name), "it is made again")
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
        api.delete(f"{namespaces}/{name}").expect(200)
        until(lambda: api.get(f"{namespaces}/{name}").status == 404, "the namespace is gone")
        assert account(api, name) is None
