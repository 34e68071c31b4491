"""Create configurations of webhooks and policies for tests, and delete them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from apiext.conformance.support.definitions import Resource
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until

BASE = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{BASE}/mutatingwebhookconfigurations"
VALIDATING = f"{BASE}/validatingwebhookconfigurations"
POLICIES = f"{BASE}/validatingadmissionpolicies"
BINDINGS = f"{BASE}/validatingadmissionpolicybindings"
MUTATING_POLICIES = f"{BASE}/mutatingadmissionpolicies"
MUTATING_BINDINGS = f"{BASE}/mutatingadmissionpolicybindings"
KINDS = {
    MUTATING: "MutatingWebhookConfiguration",
    VALIDATING: "ValidatingWebhookConfiguration",
    POLICIES: "ValidatingAdmissionPolicy",
    BINDINGS: "ValidatingAdmissionPolicyBinding",
    MUTATING_POLICIES: "MutatingAdmissionPolicy",
    MUTATING_BINDINGS: "MutatingAdmissionPolicyBinding",
}


def apply(text: str) -> dict[str, Any]:
    """Return a mutation with an apply configuration."""
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def json_patch(text: str) -> dict[str, Any]:
    """Return a mutation with a JSON patch."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


_REFUSING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    POLICIES: (BINDINGS, {"validationActions": ["Deny"]}, {"validations": [{"expression": "false"}]}),
    MUTATING_POLICIES: (
        MUTATING_BINDINGS,
        {},
        {"reinvocationPolicy": "Never", "mutations": [apply("Object{data: object.nope}")]},
    ),
}
"""Path of a kind of policies → (path of its bindings, fields of a binding, spec fields of a policy that denies all)."""


def rule(resource: Resource, *names: str, operations: tuple[str, ...] = ("*",), **more: Any) -> dict[str, Any]:
    """Return a rule for a resource, or for ``names`` in its group and version.

    Example of a name: ``widgets/status``.
    """
    return {
        "operations": list(operations),
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": list(names or (resource.plural,)),
        **more,
    }


def webhook(name: str, client: dict[str, Any], *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return one webhook of a configuration."""
    return {
        "name": f"{name}.example.com",
        "clientConfig": client,
        "rules": list(rules),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **more,
    }


def document(path: str, name: str = "", **content: Any) -> dict[str, Any]:
    """Return an object of a kind in admissionregistration.k8s.io."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": KINDS[path],
        "metadata": {"name": name or f"test-{secrets.token_hex(4)}"},
        **content,
    }


@contextlib.contextmanager
def configured(api: Client, path: str, *webhooks: dict[str, Any], name: str = "", **content: Any) -> Iterator[str]:
    """Store a configuration for the duration of a test; yield its name."""
    with stored(api, path, document(path, name, webhooks=list(webhooks), **content)) as made:
        settled(api, path)
        yield made
    settled(api, path)


@contextlib.contextmanager
def stored(api: Client, path: str, wanted: dict[str, Any]) -> Iterator[str]:
    """Store an object for the duration of a test; yield its name."""
    name: str = api.post(path, wanted).expect(201)["metadata"]["name"]
    try:
        yield name
    finally:
        api.delete(f"{path}/{name}").expect(200)


def settles_late(api: Client) -> bool:
    """Return whether configurations take effect with a delay on this server."""
    return bool(api.get("/version").expect(200)["compiler"] != "python")


def soon(api: Client, condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; on a server of this project, the condition must hold immediately."""
    until(condition, what, within=90 if settles_late(api) else 0)


def settled(api: Client, path: str) -> None:
    """Wait until all stored configurations are in effect.

    On a server of this project, they are in effect immediately. On another implementation, store one more
    configuration, with which a create of a ConfigMap fails, and wait until such a create fails.
    """
    if not settles_late(api):
        return
    name = f"settled-{secrets.token_hex(4)}"
    config_map = {"metadata": {"name": name, "labels": {"settled": name}}}
    about = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    chosen = {"objectSelector": {"matchLabels": {"settled": name}}}
    with contextlib.ExitStack() as stack:
        if path in (VALIDATING, MUTATING):
            nobody = webhook(name, {"url": "https://127.0.0.1:1/"}, about, timeoutSeconds=1, **chosen)
            stack.enter_context(stored(api, path, document(path, name, webhooks=[nobody])))
        else:
            match = {"resourceRules": [about], **chosen}
            bindings, bound, refusing = _REFUSING[path]
            spec = {"matchConstraints": match, **refusing}
            stack.enter_context(stored(api, path, document(path, name, spec=spec)))
            stack.enter_context(stored(api, bindings, document(bindings, name, spec={"policyName": name, **bound})))
        there = "/api/v1/namespaces/default/configmaps"
        until(lambda: api.post(there, config_map, dryRun="All").status != 201, f"{name} is in effect", every=0.1)
