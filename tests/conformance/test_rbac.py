"""RBAC: permissions, escalation, and the default roles and bindings.

A server of --server must run with --authorization-mode=RBAC.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.http_client import APPLY, MERGE, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server, running_server

API = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
CASES: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("rbac.yaml"))
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


@pytest.fixture(scope="session")
def rbac_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with RBAC, or the server of ``--server``."""
    if url := request.config.getoption("--server"):
        whole = Client(url).request("GET", "/api/v1/configmaps", headers={"Impersonate-User": "nobody"})
        if whole.status != 403:
            pytest.skip("the server of --server does not run with --authorization-mode=RBAC")
        yield Server(url)
        return
    flags = ["--insecure", "--port=0", "--authorization-mode=RBAC"]
    with running_server(flags, tmp_path_factory.mktemp("judging")) as started:
        yield started


@pytest.fixture
def admin(rbac_server: Server) -> Client:
    return Client(rbac_server.url)


def fill_placeholders(value: Any, words: Mapping[str, str]) -> Any:
    """Replace placeholders in a part of a case."""
    text = json.dumps(value)
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return json.loads(text)


def subject(text: str) -> dict[str, str]:
    kind, name, *namespace = text.split("/")
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace[0]} if namespace else {"kind": kind, "name": name}
    return {"kind": kind, "name": name, "apiGroup": GROUP}


def binding(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    kind, role = told["role"].split("/")
    subjects = [subject(one) for one in told["to"]]
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": subjects,
    }


def create_roles(admin: Client, case: Mapping[str, Any], namespace: str) -> list[str]:
    """Create the roles and bindings of a case; return the paths of cluster-scoped ones."""
    inside, made = f"{API}/namespaces/{namespace}", []
    for name, rules in case.get("roles", {}).items():
        admin.post(f"{inside}/roles", {"metadata": {"name": name}, "rules": rules}).expect(201)
    for name, told in case.get("bindings", {}).items():
        admin.post(f"{inside}/rolebindings", binding(name, told)).expect(201)
    for name, rules in case.get("cluster_roles", {}).items():
        admin.post(f"{API}/clusterroles", {"metadata": {"name": name}, "rules": rules}).expect(201)
        made.append(f"{API}/clusterroles/{name}")
    for name, told in case.get("cluster_bindings", {}).items():
        admin.post(f"{API}/clusterrolebindings", binding(name, told)).expect(201)
        made.append(f"{API}/clusterrolebindings/{name}")
    return made


TYPES = {"APPLY": APPLY, "PATCH": MERGE}


def send(admin: Client, ask: Mapping[str, Any]) -> tuple[int, Any]:
    method, path = ask["do"].split(" ", 1)
    headers = {"Content-Type": TYPES.get(method, "application/json")}
    if "as" in ask:
        headers["Impersonate-User"] = ask["as"]
    for group in ask.get("groups", ()):
        headers["Impersonate-Group"] = group
    if method == "APPLY":
        method, path = "PATCH", f"{path}?fieldManager=t"
    body = json.dumps(ask["body"]).encode() if "body" in ask else None
    if "watch=true" in path:
        path += "&timeoutSeconds=1"
    answer = admin.request(method, path, body, headers)
    return answer.status, answer.json if answer.raw.startswith(b"{") else {}


def find_difference(ask: Mapping[str, Any], code: int, body: Any) -> str:
    """Return the difference between a response and the expected one, empty if there is none."""
    status = body.get("status")
    seen = status if isinstance(status, dict) else {}
    rules = seen.get("resourceRules", [])
    checks = {
        "code": code == ask["code"],
        "message": "message" not in ask or body.get("message") == ask["message"],
        "says": ask.get("says", "") in body.get("message", ""),
        "status": "status" not in ask or seen == ask["status"],
        "evaluationError": ask.get("status.evaluationError", "") in seen.get("evaluationError", ""),
        "rules": all(rule in rules for rule in ask.get("rules", ())),
        "no rules": not any(rule in rules for rule in ask.get("no_rules", ())),
    }
    failed = [name for name, fine in checks.items() if not fine]
    return f"{failed} of {ask['do']}: {code} {json.dumps(body)[:1500]}" if failed else ""


@pytest.mark.rows("AUT-003", "AUT-004", "ERR-18")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_roles_and_bindings_grant_permissions(admin: Client, foreign: bool, case: dict[str, Any]) -> None:
    key = secrets.token_hex(4)
    words = {"$n": f"n-{key}", "$u": f"user-{key}", "$g": f"group-{key}", "$c": f"c-{key}"}
    case = fill_placeholders({**case, "name": ""}, words)
    namespace = words["$n"]
    admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).expect(201)
    made = create_roles(admin, case, namespace)
    try:
        for ask in case["asks"]:
            if foreign and "differs" in ask:
                continue
            problem = find_difference(ask, *send(admin, ask))
            if problem and foreign:  # its caches lag behind
                until(lambda ask=ask: not find_difference(ask, *send(admin, ask)), problem, 5, 0.2)  # type: ignore[misc]
            else:
                assert not problem, problem
    finally:
        for path in (*made, f"{API}/clusterroles/{words['$c']}-new", f"/api/v1/namespaces/{namespace}"):
            admin.delete(path)


@pytest.mark.rows("AUT-005", "ERR-18")
def test_refusals_that_quote_the_request_send_nosniff(admin: Client) -> None:
    """Refusals of authorization have the header nosniff.

    Browsers then do not guess their type.
    """
    as_nobody = {"Impersonate-User": secrets.token_hex(4)}
    for code, method, path, headers in (
        (403, "GET", "/api/v1/configmaps", as_nobody),
        (403, "GET", "/nowhere", as_nobody),
        (403, "GET", "/api/v1/configmaps", as_nobody | {"Authorization": ""}),
        (400, "GET", "/api/v1/configmaps", {"Impersonate-Group": "g"}),
    ):
        answer = admin.request(method, path, None, headers)
        assert (answer.status, answer.headers.get("x-content-type-options")) == (code, "nosniff")
    kept = admin.delete("/api/v1/namespaces/kube-system")
    assert (kept.status, "x-content-type-options" in kept.headers) == (403, False)


@pytest.mark.rows("AUT-005")
@pytest.mark.parametrize("name", [b"Impersonate-User", b"Impersonate-Group", b"Impersonate-Uid"])
def test_impersonation_headers_replace_invalid_utf8(rbac_server: Server, name: bytes) -> None:
    where = urlsplit(rbac_server.url)
    user = b"" if name == b"Impersonate-User" else b"Impersonate-User: x\r\n"
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
    head = b"POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    fields = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    with socket.create_connection((where.hostname, where.port), 10) as connection:
        connection.sendall(head + fields + user + name + b": \xfc\xff\r\n\r\n" + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert "\ufffd".encode() in answer or b"\\ufffd" in answer


@pytest.mark.rows("AUT-003")
def test_changed_roles_apply_at_once(admin: Client, foreign: bool) -> None:
    key = secrets.token_hex(4)
    role, bound = {"metadata": {"name": key}, "rules": []}, binding(key, {"role": f"ClusterRole/{key}", "to": []})
    read = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    joe = {"as": key, "do": "GET /api/v1/configmaps"}

    def check_code(code: int) -> None:
        if foreign:
            until(lambda: send(admin, joe)[0] == code, f"the code {code}", 5)
        assert send(admin, joe)[0] == code

    def change(path: str, body: dict[str, Any]) -> None:
        admin.request("PATCH", f"{API}/{path}/{key}", json.dumps(body).encode(), {"Content-Type": MERGE}).expect(200)

    admin.post(f"{API}/clusterroles", role).expect(201)
    admin.post(f"{API}/clusterrolebindings", bound).expect(201)
    check_code(403)
    change("clusterroles", {"rules": [read]})
    check_code(403)
    change("clusterrolebindings", {"subjects": [subject(f"User/{key}")]})
    check_code(200)
    change("clusterroles", {"rules": []})
    check_code(403)
    change("clusterroles", {"rules": [{**read, "verbs": ["*"]}]})
    check_code(200)
    admin.delete(f"{API}/clusterrolebindings/{key}").expect(200)
    check_code(403)
    admin.post(f"{API}/clusterrolebindings", {**bound, "subjects": [subject(f"User/{key}")]}).expect(201)
    check_code(200)
    admin.delete(f"{API}/clusterroles/{key}").expect(200)
    check_code(403)
    admin.delete(f"{API}/clusterrolebindings/{key}").expect(200)


DEFAULTS = (
    "cluster-admin", "admin", "edit", "view", "system:aggregate-to-admin", "system:aggregate-to-edit",
    "system:aggregate-to-view", "system:auth-delegator", "system:basic-user", "system:discovery", "system:monitoring",
    "system:public-info-viewer", "system:service-account-issuer-discovery",
)  # fmt: skip


@pytest.mark.rows("AUT-003")
def test_default_roles_are_there(admin: Client) -> None:
    for name in DEFAULTS:
        role = admin.get(f"{API}/clusterroles/{name}").expect(200)
        assert role["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert role["metadata"]["annotations"][AUTOUPDATE] == "true"
        owners = [owner["manager"] for owner in role["metadata"]["managedFields"] if owner["operation"] == "Update"]
        assert owners == ["kube-apiserver"]
    all_of_it = admin.get(f"{API}/clusterroles/cluster-admin").expect(200)["rules"]
    assert all_of_it == [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    edit = admin.get(f"{API}/clusterroles/edit").expect(200)
    assert edit["metadata"]["labels"][f"{GROUP}/aggregate-to-admin"] == "true"
    assert edit["aggregationRule"] == {
        "clusterRoleSelectors": [{"matchLabels": {f"{GROUP}/aggregate-to-edit": "true"}}]
    }
    bound = admin.get(f"{API}/clusterrolebindings/system:public-info-viewer").expect(200)
    assert [one["name"] for one in bound["subjects"]] == ["system:authenticated", "system:unauthenticated"]
    reader = "extension-apiserver-authentication-reader"
    bound = admin.get(f"{API}/namespaces/kube-system/rolebindings/system::{reader}").expect(200)
    assert bound["roleRef"]["name"] == reader
    assert [one["name"] for one in bound["subjects"]] == ["system:kube-controller-manager", "system:kube-scheduler"]
    rules = admin.get(f"{API}/namespaces/kube-system/roles/{reader}").expect(200)["rules"]
    assert rules == [
        {
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ]  # fmt: skip
    assert "poststarthook/rbac/bootstrap-roles ok" in admin.request("GET", "/readyz?verbose").text


@pytest.mark.rows("AUT-003")
def test_aggregated_roles_collect_rules_of_selected_roles(api: Client) -> None:
    # upstream: updates all aggregated roles, since it does not index their selectors
    key = secrets.token_hex(4)
    rules = [{"apiGroups": [key], "resources": [one], "verbs": ["get"]} for one in "abc"]

    def role(name: str, labels: dict[str, str], *given: dict[str, Any]) -> None:
        metadata = {"name": f"{name}-{key}", "labels": labels}
        api.post(f"{API}/clusterroles", {"metadata": metadata, "rules": list(given)}).expect(201)

    def wait_for_rules(*wanted: dict[str, Any]) -> dict[str, Any]:
        def read_rules() -> dict[str, Any] | None:
            seen: dict[str, Any] = api.get(f"{API}/clusterroles/whole-{key}").expect(200)
            return seen if (seen["rules"] or []) == list(wanted) else None

        return until(read_rules, "the rules of the aggregated role", 10)

    role("b", {"to": key}, rules[1], rules[0])
    role("a", {"to": key}, rules[0])
    role("other", {"to": "nothing"}, rules[2])
    whole = {
        "metadata": {"name": f"whole-{key}", "labels": {"to": key}},
        "rules": [rules[2]],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": key}}]},
    }
    api.post(f"{API}/clusterroles", whole).expect(201)
    seen = wait_for_rules(rules[0], rules[1])
    owners = {
        (one["manager"], one["operation"]) for one in seen["metadata"]["managedFields"] if "f:rules" in one["fieldsV1"]
    }
    assert owners == {("clusterrole-aggregation-controller", "Apply")}
    api.patch(f"{API}/clusterroles/other-{key}", {"metadata": {"labels": {"to": key}}}).expect(200)
    wait_for_rules(rules[0], rules[1], rules[2])
    api.patch(f"{API}/clusterroles/whole-{key}", {"rules": []}).expect(200)
    wait_for_rules(rules[0], rules[1], rules[2])
    for name in ("a", "b", "other"):
        api.delete(f"{API}/clusterroles/{name}-{key}").expect(200)
    wait_for_rules()
    api.delete(f"{API}/clusterroles/whole-{key}").expect(200)


@pytest.mark.rows("AUT-003")
def test_policy_expressions_authorize_by_roles(admin: Client) -> None:
    key = secrets.token_hex(4)
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    reads = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update"]}
    admin.post("/api/v1/namespaces", {"metadata": {"name": f"n-{key}", "labels": {"of": key}}}).expect(201)
    secret = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    everybody = {"role": "Role/s", "to": ["Group/system:authenticated"]}
    accounts = {"role": "Role/a", "to": ["Group/system:serviceaccounts:default"]}
    roles = {"r": [reads], "s": [secret], "a": [{**secret, "verbs": ["list"]}]}
    bindings_of = {"b": {"role": "Role/r", "to": [f"User/{key}"]}, "s": everybody, "a": accounts}
    create_roles(admin, {"roles": roles, "bindings": bindings_of}, f"n-{key}")
    account = f"authorizer.serviceAccount('default', 'x').group('').resource('secrets').namespace('n-{key}')"
    may = "authorizer.requestResource.check('update').reason()"
    expressions = (
        f"""{may} == 'RBAC: allowed by RoleBinding "b/n-{key}" of Role "r" to User "{key}"'""",
        f"authorizer.group('').resource('secrets').namespace('n-{key}').check('update').allowed() == false",
        "authorizer.path('/apis').check('get').allowed() && !authorizer.path('/metrics').check('get').allowed()",
        # upstream: a service account in an expression does not have the group system:authenticated
        f"{account}.check('list').allowed() && !{account}.check('get').allowed()",
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"of": key}}},
        "validations": [{"expression": one} for one in (*expressions, "object.metadata.name != 'bad'")],
    }
    admin.post(path, {"metadata": {"name": key}, "spec": spec}).expect(201)
    bound = {"policyName": key, "validationActions": ["Deny"]}
    admin.post(bindings, {"metadata": {"name": key}, "spec": bound}).expect(201)
    made = f"POST /api/v1/namespaces/n-{key}/configmaps?dryRun=All"
    try:
        bad = {"as": key, "do": made, "body": {"metadata": {"name": "bad"}}}
        until(lambda: send(admin, bad)[0] == 422, "the policy counts", 20)
        code, answer = send(admin, {"as": key, "do": made, "body": {"metadata": {"name": "good"}}})
        assert code == 201, answer
    finally:
        admin.delete(f"{bindings}/{key}")
        admin.delete(f"{path}/{key}")
        admin.delete(f"/api/v1/namespaces/n-{key}")


@pytest.mark.rows("AUT-003", "ETC-010")
def test_peer_applies_roles_and_restart_reconciles_defaults(own_etcd: Etcd, tmp_path: Path) -> None:
    flags = [
        "--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/roles-{secrets.token_hex(4)}",
        "--authorization-mode=RBAC", "--controllers=*,-clusterrole-aggregation-controller",
    ]  # fmt: skip
    with running_server(flags, tmp_path / "one") as one, running_server(flags, tmp_path / "two") as two:
        here, there = Client(one.url), Client(two.url)
        create_roles(
            here, {"roles": {"r": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]}}, "default"
        )
        create_roles(here, {"bindings": {"b": {"role": "Role/r", "to": ["User/joe"]}}}, "default")
        ask = {"as": "joe", "do": "GET /api/v1/namespaces/default/secrets"}
        until(lambda: send(there, ask)[0] == 200, "the role of the other server", 5)
        assert not here.get(f"{API}/clusterroles/view").expect(200)["rules"], "nobody fills them in"
        taken = here.get(f"{API}/clusterroles/system:discovery").expect(200)
        kept = here.get(f"{API}/clusterroles/system:monitoring").expect(200)
        taken["rules"] = [{"apiGroups": ["a"], "resources": ["b"], "verbs": ["c"]}]
        kept["rules"], kept["metadata"]["annotations"][AUTOUPDATE] = [], "false"
        here.put(f"{API}/clusterroles/system:discovery", taken).expect(200)
        here.put(f"{API}/clusterroles/system:monitoring", kept).expect(200)
        here.delete(f"{API}/clusterroles/view").expect(200)
        bound = here.get(f"{API}/clusterrolebindings/system:discovery").expect(200)
        here.put(f"{API}/clusterrolebindings/system:discovery", {**bound, "subjects": []}).expect(200)
        other = here.get(f"{API}/clusterrolebindings/system:monitoring").expect(200)
        here.delete(f"{API}/clusterrolebindings/system:monitoring").expect(200)
        again = {"metadata": {"name": "system:monitoring"}, "roleRef": {**other["roleRef"], "name": "view"}}
        here.post(f"{API}/clusterrolebindings", again).expect(201)
    with running_server(flags, tmp_path / "one") as one:
        here = Client(one.url)
        rules = here.get(f"{API}/clusterroles/system:discovery").expect(200)["rules"]
        assert rules[0] == {"apiGroups": ["a"], "resources": ["b"], "verbs": ["c"]}, "what was added stays"
        assert {"nonResourceURLs": ["/apis"], "verbs": ["get"]} in rules, "what was taken away comes back"
        assert not here.get(f"{API}/clusterroles/system:monitoring").expect(200)["rules"], "as the annotation says"
        assert "aggregationRule" in here.get(f"{API}/clusterroles/view").expect(200)
        bound = here.get(f"{API}/clusterrolebindings/system:discovery").expect(200)
        assert [one["name"] for one in bound["subjects"]] == ["system:authenticated"]
        assert here.get(f"{API}/clusterrolebindings/system:monitoring").expect(200)["roleRef"] == other["roleRef"]


@pytest.mark.rows("AUT-001", "AUT-003", "AUT-005", "ERR-18", "ERR-19")
def test_token_users_need_roles_and_impersonation_rights(own_etcd: Etcd, tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text('one,alice,1001,"devs"\ntwo,bob,1002\nthree,root,1003,"system:masters"\n')
    flags = [
        "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/users-{secrets.token_hex(4)}",
        "--authorization-mode=Node,RBAC", f"--token-auth-file={tmp_path / 'tokens.csv'}",
    ]  # fmt: skip
    with running_server(flags, tmp_path / "data") as server:
        tls = ssl.create_default_context(cafile=str(tmp_path / "data" / "pki" / "ca.crt"))
        alice, bob, root = (
            Client(server.url, {"Authorization": f"Bearer {token}"}, tls) for token in ("one", "two", "three")
        )
        assert Client(server.url, tls=tls).get("/api/v1/namespaces/default").status == 401
        assert Client(server.url, tls=tls).get("/livez").status == 200
        path = "/api/v1/namespaces/default/configmaps"
        alice.get(path).expect(403)
        root.get(path).expect(200)
        rules = [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["impersonate-on:user-info:list", "list"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]},
            {"apiGroups": [""], "resources": ["users"], "resourceNames": ["old"], "verbs": ["impersonate"]},
        ]
        create_roles(root, {"cluster_roles": {"act": rules}, "cluster_bindings": {"act": {"role": "ClusterRole/act",
             "to": ["Group/devs"]}}}, "default")  # fmt: skip
        alice.get(path).expect(200)
        refused = alice.request("GET", path, headers={"Impersonate-User": "carl"}).expect(403)
        assert 'User "carl" cannot list resource "configmaps"' in refused["message"]
        other = alice.request("GET", f"{path}/a", headers={"Impersonate-User": "carl"})
        assert 'User "alice" cannot impersonate-on:user-info:get resource "configmaps"' in other.expect(403)["message"]
        assert other.headers["x-content-type-options"] == "nosniff", "its text quotes the request"
        old = alice.request("GET", f"{path}/a", headers={"Impersonate-User": "old"}).expect(403)
        assert 'User "old" cannot get resource "configmaps"' in old["message"]
        master = alice.request("GET", path, headers={"Impersonate-User": "x", "Impersonate-Group": "system:masters"})
        assert master.expect(403)["message"].endswith("impersonating the system:masters group is not allowed")
        account = bob.request("GET", path, headers={"Impersonate-User": "system:serviceaccount:default:a"}).expect(403)
        assert 'User "bob" cannot impersonate-on:serviceaccount:list resource "configmaps"' in account["message"]
        node = root.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"kind": "SelfSubjectReview"},
            {"Impersonate-User": "system:node:n1"},
        ).expect(201)
        assert node["status"]["userInfo"]["groups"] == ["system:nodes", "system:authenticated"]
        root.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).expect(201)
        bound = {"spec": {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "n1"}}}
        issued = root.post("/api/v1/namespaces/default/serviceaccounts/default/token", bound).expect(201)
        agent = Client(server.url, {"Authorization": f"Bearer {issued['status']['token']}"}, tls)
        rules = [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["impersonate-on:associated-node:list"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["nodes"], "verbs": ["impersonate:associated-node"]},
        ]
        create_roles(root, {"cluster_roles": {"agent": rules}, "cluster_bindings": {"agent": {"role":
             "ClusterRole/agent", "to": ["Group/system:serviceaccounts:default"]}}}, "default")  # fmt: skip
        own = agent.request("GET", path, headers={"Impersonate-User": "system:node:n1"}).expect(403)
        assert 'User "system:node:n1" cannot list resource "configmaps"' in own["message"]
        foreign = agent.request("GET", path, headers={"Impersonate-User": "system:node:n2"}).expect(403)
        assert "cannot impersonate-on:arbitrary-node:list" in foreign["message"]
    log = (tmp_path / "data" / "server.log").read_text()
    assert log.count("apiext does not have Node, requests are authorized by RBAC") == 1
