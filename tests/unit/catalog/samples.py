"""Served resources for the tests, compiled from small definitions."""

from __future__ import annotations

from typing import Any

from apiext.catalog.compile import compile_definition
from apiext.catalog.served import ServedResource
from apiext.crd.decoding import decode_v1
from apiext.documents.document import Document

SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}
HOOK = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v1"]}}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CLOSED = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "color": {"type": "string", "default": "red"},
                "owner": {"type": "object", "properties": {"uid": {"type": "string"}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def version(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    """Return an entry of spec.versions."""
    return {"name": name, "served": True, "storage": False, "schema": {"openAPIV3Schema": schema}, **more}


def definition(*versions: dict[str, Any], **spec: Any) -> Document:
    """Return a definition of widgets, all names accepted and established."""
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["w"],
        "categories": ["all"],
    }
    first, *others = versions or (version("v1", CLOSED, subresources={"status": {}, "scale": SCALE}),)
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com", "uid": "d", "generation": 1},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [{**first, "storage": True}, *others],
            **spec,
        },
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    }
    return decode_v1(body)[0]


def resource(*versions: dict[str, Any], **spec: Any) -> ServedResource:
    """Return the compiled definition; the first version is the storage version."""
    return compile_definition(definition(*versions, **spec))


def widget(uid: str = "8c9f7a64-4f0e-4d3a-9a55-1a2b3c4d5e6f", **parts: Any) -> Document:
    """Return a widget as verbs pass it to be encoded."""
    metadata = {"name": "x", "namespace": "n", "uid": uid, "generation": 1, **parts.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, **parts}
