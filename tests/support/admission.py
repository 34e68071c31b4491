"""Knows webhook configurations: builds them for one resource, applies them, and takes them away again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

from tests.support.definitions import Resource
from tests.support.http_client import Client

BASE = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{BASE}/mutatingwebhookconfigurations"
VALIDATING = f"{BASE}/validatingwebhookconfigurations"
POLICIES = f"{BASE}/validatingadmissionpolicies"
BINDINGS = f"{BASE}/validatingadmissionpolicybindings"
KINDS = {
    MUTATING: "MutatingWebhookConfiguration",
    VALIDATING: "ValidatingWebhookConfiguration",
    POLICIES: "ValidatingAdmissionPolicy",
    BINDINGS: "ValidatingAdmissionPolicyBinding",
}


def rule(resource: Resource, *names: str, operations: tuple[str, ...] = ("*",), **more: Any) -> dict[str, Any]:
    """Return a rule about a resource, or about its subresources that are named (``widgets/status``)."""
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
    """Return an object of one of the kinds of this group."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": KINDS[path],
        "metadata": {"name": name or f"test-{secrets.token_hex(4)}"},
        **content,
    }


@contextlib.contextmanager
def configured(api: Client, path: str, *webhooks: dict[str, Any], name: str = "", **content: Any) -> Iterator[str]:
    """Have a configuration stored while the test needs it; yields its name."""
    with stored(api, path, document(path, name, webhooks=list(webhooks), **content)) as made:
        yield made


@contextlib.contextmanager
def stored(api: Client, path: str, wanted: dict[str, Any]) -> Iterator[str]:
    """Have an object stored while the test needs it; yields its name."""
    name: str = api.post(path, wanted).expect(201)["metadata"]["name"]
    try:
        yield name
    finally:
        api.delete(f"{path}/{name}").expect(200)
