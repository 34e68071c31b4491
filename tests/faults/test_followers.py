"""Listeners of a collection survive any stored value, also at a start.

Their work is linear in the bytes of the value. A listener gets each change of a resource and computes a value from
the objects. Each listener has a row here.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, until
from tests.support.processes import ROOT, Etcd, Server, running_etcd, running_server
from tests.support.strain import strained

NAMESPACES, SERVICES, SECRETS, ACCOUNTS = (
    "namespaces",
    "services/specs/default",
    "secrets/default",
    "serviceaccounts/default",
)
RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
ROLES = (f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings", f"{RBAC}/roles/default", f"{RBAC}/rolebindings/default")
HOOKS = tuple(
    f"{ADMISSION}/{plural}"
    for plural in (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
)
MIGRATIONS = "storagemigration.k8s.io/storageversionmigrations"
CONFIG_MAPS = "configmaps/default"
QUOTAS, PODS, CLAIMS, VOLUMES = (
    "resourcequotas/default",
    "pods/default",
    "persistentvolumeclaims/default",
    "persistentvolumes",
)
ATTRIBUTES_CLASSES = "storage.k8s.io/volumeattributesclasses"
PROTECTED = (CLAIMS, VOLUMES, ATTRIBUTES_CLASSES)

FOLLOWERS: Mapping[str, tuple[str, ...]] = {
    "admission/configured.py Live.__init__": HOOKS,
    "admission/quotas.py ResourceQuota.__init__": (QUOTAS,),
    "auth/roles.py Roles._follow": ROLES,
    "controllers/account_tokens.py AccountTokens.start": (SECRETS, ACCOUNTS),
    "controllers/aggregation.py Aggregation.start": (f"{RBAC}/clusterroles",),
    "controllers/default_accounts.py DefaultAccounts.start": (NAMESPACES, ACCOUNTS),
    "controllers/definitions.py Definitions.start": (DEFINITIONS,),
    "controllers/definition_loops.py DefinitionLoops.follow": (DEFINITIONS,),
    "controllers/dependents.py Dependents.follow": (CONFIG_MAPS, SECRETS),
    "controllers/first_objects.py FirstObjects.start": (SERVICES, CONFIG_MAPS),
    "controllers/garbage.py Garbage._follow": (CONFIG_MAPS,),
    "controllers/instances.py Sweep.__init__": (CONFIG_MAPS,),
    "controllers/late.py LateController.start": (QUOTAS, *PROTECTED),
    "controllers/migrations.py Migrations.start": (MIGRATIONS,),
    "controllers/peers.py Peers.follow": (DEFINITIONS, NAMESPACES),
    "controllers/policies.py Policies.start": (f"{ADMISSION}/validatingadmissionpolicies",),
    "controllers/protection.py Protection._follow_consumers": (PODS, CLAIMS, VOLUMES),
    "controllers/protection.py Protection.start": PROTECTED,
    "controllers/quotas.py Quotas._follow": (PODS, CONFIG_MAPS),
    "controllers/quotas.py Quotas.start": (QUOTAS,),
    "controllers/serving.py Serving.start": (DEFINITIONS,),
    "controllers/startup.py Controllers._empty_namespaces": (NAMESPACES,),
    "controllers/startup.py follow_services": (SERVICES,),
    "storage/collection.py Collection.follow": (CONFIG_MAPS,),
}
"""Listener of a collection → the prefixes of the keys of its objects in etcd."""
PLACES = tuple(dict.fromkeys(place for places in FOLLOWERS.values() for place in places))

FLAGS = [
    "--insecure", "--port=0", "--authorization-mode=RBAC", "--controllers=*",
    "--enable-admission-plugins=MutatingAdmissionPolicy", "--runtime-config=api/all=true",
]  # fmt: skip


def test_each_collection_listener_has_a_row() -> None:
    found = set()
    for file in sorted((ROOT / "apiext").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for outer in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
            for function in outer.body:
                if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
                if any(_is_subscription(one) for one in called):
                    within = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
                    found.add(f"{file.relative_to(ROOT / 'apiext').as_posix()} {within}{function.name}")
    assert found == set(FOLLOWERS)


def _is_subscription(called: ast.expr) -> bool:
    if not isinstance(called, ast.Attribute) or called.attr not in ("subscribe", "follow"):
        return False
    whose = ast.unparse(called.value).rpartition(".")[2]
    return called.attr == "subscribe" or whose in ("collection", "_collection", "dependents")


ODD: Any = [None, 1, "x", [], {}, [1], ["x"], [{}], [[]], {"x": 1}, {"x": []}, [{"name": 1}], [{"name": []}]]
FIELDS = {
    "metadata": ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp", "uid", "generation"],
    "spec": [
        "names", "versions", "group", "scope", "conversion", "clusterIP", "clusterIPs", "ports", "healthCheckNodePort",
        "validations", "matchConstraints", "paramKind", "variables", "matchConditions", "policyName", "paramRef",
        "resource", "finalizers", "mutations", "auditAnnotations",
    ],
    "status": ["conditions", "observedGeneration", "resourceVersion", "acceptedNames", "storedVersions", "phase"],
    "roleRef": ["kind", "name"],
    "data": ["token"],
    "aggregationRule": ["clusterRoleSelectors"],
}  # fmt: skip
WHOLE = ("metadata", "spec", "status", "roleRef", "subjects", "rules", "webhooks", "data", "type", "aggregationRule")


def odd_objects() -> Iterator[dict[str, Any]]:
    """Yield objects that no client can write; each has a field of a wrong type."""
    yield {}
    for name in WHOLE:
        for odd in ODD:
            yield {name: odd}
    for within, names in FIELDS.items():
        for name in names:
            for odd in ODD:
                yield {"metadata": {"name": "x", "uid": "u"}, within: {name: odd}}
    for name in ("rules", "webhooks", "subjects"):
        for field in (
            "verbs",
            "resources",
            "nonResourceURLs",
            "clientConfig",
            "rules",
            "kind",
            "name",
            "matchConditions",
        ):
            for odd in ODD:
                yield {name: [{field: odd}]}


def put(etcd: Etcd, place: str, documents: Mapping[str, Any]) -> None:
    """Store objects by name in etcd, 100 in each transaction."""
    named = [
        (base64_text(f"/registry/{place}/{name}".encode()), base64_text(encoded(it))) for name, it in documents.items()
    ]
    for first in range(0, len(named), 100):
        writes = [{"requestPut": {"key": key, "value": value}} for key, value in named[first : first + 100]]
        etcd.call("kv/txn", {"success": writes})


def remove(etcd: Etcd, place: str) -> None:
    key, end = (base64_text(f"/registry/{place}/odd{last}".encode()) for last in ("", "~"))
    etcd.call("kv/deleterange", {"key": key, "range_end": end})


def base64_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("etcd"), "--max-request-bytes=4000000") as running:
        yield running


def run_server(etcd: Etcd, directory: Path) -> Any:
    return running_server([*FLAGS, f"--etcd-servers={etcd.url}"], directory)


def check_responses(server: Server) -> None:
    assert Client(server.url).get("/readyz").status == 200
    Client(server.url).get("/api/v1/namespaces/default").expect(200)
    assert "a listener of" not in server.log_tail()


@pytest.mark.rows("RV-020")
def test_stored_objects_of_any_shape_do_not_stop_the_server(etcd: Etcd, tmp_path: Path) -> None:
    objects = {f"odd{number}": document for number, document in enumerate(odd_objects())}
    with run_server(etcd, tmp_path) as server:
        for place in PLACES:
            put(etcd, place, objects)
        until(lambda: Client(server.url).get("/readyz").status == 200, "it is ready")
        check_responses(server)
    with run_server(etcd, tmp_path) as server:
        check_responses(server)
        for place in PLACES:
            remove(etcd, place)
        check_responses(server)


def named(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "odd", "uid": "u"}, **fields}


def owners(count: int) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"c{it}", "uid": f"u{it}"} for it in range(count)]


RULE = {"apiGroups": [""], "verbs": ["get"], "resources": ["pods"]}
HOOK = {"name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1"}, "rules": [], "sideEffects": "None"}
LARGE: Mapping[str, tuple[str, Any]] = {
    "a role of many rules": (f"{RBAC}/roles/default", named(rules=[RULE] * 20_000)),
    "a wide role": (f"{RBAC}/clusterroles", named(rules=[
        {**RULE, "resources": [f"r{it}" for it in range(50_000)], "resourceNames": [f"n{it}" for it in range(50_000)]}
    ])),
    "a binding of many subjects": (f"{RBAC}/rolebindings/default", named(
        roleRef={"kind": "Role", "name": "odd"}, subjects=[{"kind": "User", "name": f"u{it}"} for it in range(30_000)]
    )),
    "a service of many ports": (SERVICES, named(spec={"ports": [{"nodePort": it} for it in range(1, 60_000)]})),
    "a secret for a token": (SECRETS, {
        "metadata": {"name": "odd", "annotations": {"kubernetes.io/service-account.name": "none"}},
        "type": "kubernetes.io/service-account-token", "data": {f"k{it}": "" for it in range(100_000)},
    }),
    "many owners": (CONFIG_MAPS, {"metadata": {"name": "odd", "uid": "u", "ownerReferences": owners(3_000)}}),
    "many webhooks": (HOOKS[1], named(webhooks=[HOOK] * 8_000)),
    "a namespace of many finalizers": (NAMESPACES, named(spec={"finalizers": ["kubernetes"] * 100_000})),
    "a migration of many conditions": (MIGRATIONS, named(
        spec={"resource": {"group": "", "resource": "configmaps"}},
        status={"conditions": [{"type": f"c{it}", "status": "True"} for it in range(30_000)]},
    )),
    "an account of many secrets": (ACCOUNTS, named(secrets=[{"name": f"s{it}"} for it in range(50_000)])),
}  # fmt: skip


@pytest.mark.rows("RV-020")
def test_large_stored_objects_cost_linear_cpu_and_memory(etcd: Etcd, tmp_path: Path) -> None:
    with run_server(etcd, tmp_path) as server:
        for what, (place, document) in LARGE.items():
            print(what, len(encoded(document)))
            with strained(server, cpu=1.5, mib=80):
                put(etcd, place, {"odd": document})
                check_responses(server)
                pause(0.3)
    with run_server(etcd, tmp_path) as server:
        check_responses(server)
        for place in PLACES:
            remove(etcd, place)
