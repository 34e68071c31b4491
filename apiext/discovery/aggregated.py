"""Aggregated discovery: every group, version and resource in one document with an ETag (DIS-106, DIS-107)."""

import hashlib
from dataclasses import dataclass

from apiext.catalog.served import Catalog, Endpoint, ServedVersion
from apiext.discovery.groups import CORE, Published, published
from apiext.documents.document import Document
from apiext.documents.encoding import encode_in_order

MEDIA_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The Content-Type of the answer, exactly as clients expect it echoed."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A document as bytes, and its ETag with its quotes."""

    body: bytes
    etag: str


def etag(body: bytes) -> str:
    """Return the ETag of a body: quoted upper-case hex of its SHA-512 (DIS-107, OAS-001)."""
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


def document(catalog: Catalog, *, core: bool) -> Tagged:
    """Return the APIGroupDiscoveryList of ``/api`` (the core group) or of ``/apis`` (all others)."""
    make = _core if core else _others
    return catalog.remember(f"discovery.aggregated.{core}", make)  # type: ignore[no-any-return]  # an untyped cache


def _core(catalog: Catalog) -> Tagged:
    return _tagged(catalog, [CORE] if CORE in published(catalog) else [])


def _others(catalog: Catalog) -> Tagged:
    return _tagged(catalog, [name for name in published(catalog) if name != CORE])


def _tagged(catalog: Catalog, groups: list[str]) -> Tagged:
    body = encode_in_order(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [_group(catalog, name) for name in groups],
        }
    )
    return Tagged(body, etag(body))


def _group(catalog: Catalog, name: str) -> Document:
    versions = [
        {"version": version, "resources": [_resource(one) for one in found], "freshness": "Current"}
        for version, found in published(catalog)[name].items()
    ]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def _resource(one: Published) -> Document:
    served = one.version
    entry: Document = {
        "resource": served.resource,
        "responseKind": _kind(served.group, served.version, served.kind),
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular,
        "verbs": list(one.verbs),
    }
    if served.short_names:
        entry["shortNames"] = list(served.short_names)
    if served.categories:
        entry["categories"] = list(served.categories)
    subresources = [_subresource(served, endpoint) for endpoint in one.subresources()]
    if subresources:
        entry["subresources"] = subresources
    return entry


def _subresource(served: ServedVersion, endpoint: Endpoint) -> Document:
    if endpoint.kind:
        kind = _kind(endpoint.group, endpoint.version, endpoint.kind)
    else:
        kind = _kind(served.group, served.version, served.kind)
    return {"subresource": endpoint.name, "responseKind": kind, "verbs": list(endpoint.verbs)}


def _kind(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}
