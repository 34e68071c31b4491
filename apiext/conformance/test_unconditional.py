"""PUT without resourceVersion: an overwrite for some kinds, an error for other kinds."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import DEFINITIONS, Client

OVERWRITTEN = (
    ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap", {"data": {"a": "{}"}}),
    ("/api/v1/namespaces/default/secrets", "v1", "Secret", {"stringData": {"a": "{}"}}),
    ("/api/v1/namespaces/default/serviceaccounts", "v1", "ServiceAccount", {"metadata": {"labels": {"a": "v{}"}}}),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1", "ClusterRole", {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["v{}"]}]
    }),
)  # fmt: skip


def body(api_version: str, kind: str, name: str, content: Any, turn: int) -> dict[str, Any]:
    """Return an object whose content depends on ``turn``."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        return value.replace("{}", str(turn))

    found: dict[str, Any] = {"metadata": {}, **filled(content)}
    found["metadata"]["name"] = name
    return {"apiVersion": api_version, "kind": kind, **found}


@pytest.mark.rows("UPD-004", "KUB-006")
@pytest.mark.parametrize(("path", "api_version", "kind", "content"), OVERWRITTEN, ids=[row[2] for row in OVERWRITTEN])
def test_core_kinds_are_overwritten(api: Client, path: str, api_version: str, kind: str, content: Any) -> None:
    name = f"u{secrets.token_hex(4)}"
    first = api.post(path, body(api_version, kind, name, content, 1)).expect(201)
    second = api.put(f"{path}/{name}", body(api_version, kind, name, content, 2)).expect(200)
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    stale = body(api_version, kind, name, content, 3)
    stale["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"]
    assert api.put(f"{path}/{name}", stale).status == 409
    api.delete(f"{path}/{name}")


@pytest.mark.rows("UPD-004")
def test_definitions_leases_and_custom_objects_are_not_overwritten(api: Client) -> None:
    widgets = serve(api)
    made = widgets.create("a")
    definition = api.get(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    name = f"u{secrets.token_hex(4)}"
    lease = api.post(leases, {"metadata": {"name": name}, "spec": {"holderIdentity": "me"}}).expect(201)
    for path, document in (
        (widgets.path("a"), made),
        (f"{DEFINITIONS}/widgets.{widgets.group}", definition),
        (f"{leases}/{name}", lease),
    ):
        del document["metadata"]["resourceVersion"]
        refused = api.put(path, document).expect(422)
        assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused["message"]
    api.delete(f"{leases}/{name}")
