"""Fill in the defaults of a decoded definition (CRD-002, B1-003)."""

from typing import Any

from apiext.documents.document import Document
from apiext.meta.syntax import lower

WEBHOOK_PORT = 443


def default_v1(document: Document) -> Document:
    """Fill in the defaults of a decoded v1 definition, in place."""
    spec = document["spec"]
    _names(spec["names"])
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    webhook = conversion.get("webhook") or {}
    _port(webhook.get("clientConfig"))
    if webhook and webhook.get("clientConfig") is None and webhook.get("conversionReviewVersions") is None:
        del conversion["webhook"]  # upstream: the internal form cannot represent an empty webhook
    _stored_versions(document)
    return document


def default_v1beta1(document: Document) -> Document:
    """Fill in the defaults of a decoded v1beta1 definition, in place."""
    spec = document["spec"]
    spec["scope"] = spec["scope"] or "Namespaced"
    _names(spec["names"])
    versions, version = spec.get("versions"), spec.get("version", "")
    if not versions and version:
        spec["versions"] = [{"name": version, "served": True, "storage": True}]
    if not version and versions:
        spec["version"] = versions[0]["name"]
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    if conversion["strategy"] == "Webhook" and not conversion.get("conversionReviewVersions"):
        conversion["conversionReviewVersions"] = ["v1beta1"]
    _port(conversion.get("webhookClientConfig"))
    spec.setdefault("preserveUnknownFields", True)
    _stored_versions(document)
    return document


def _names(names: Document) -> None:
    kind = names["kind"]
    if kind:
        names.setdefault("singular", lower(kind))
        names.setdefault("listKind", f"{kind}List")


def _port(client_config: Any) -> None:
    service = (client_config or {}).get("service")
    if service is not None:
        service.setdefault("port", WEBHOOK_PORT)


def _stored_versions(document: Document) -> None:
    status = document["status"]
    if not status["storedVersions"]:
        stored = [version["name"] for version in document["spec"].get("versions") or () if version["storage"]]
        status["storedVersions"] = stored[:1] or None
