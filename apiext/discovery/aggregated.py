"""Aggregated discovery: the groups, versions and resources of /api or /apis in one document.

See DIS-106, DIS-107.
"""

from collections.abc import Callable, Mapping

from apiext.catalog.served import Catalog, Endpoint, ServedVersion
from apiext.discovery import protobuf
from apiext.discovery.groups import CORE, Published, published
from apiext.discovery.tagged import Tagged, etag
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode_in_order, encode_yaml
from apiext.meta.media_types import JSON, PROTOBUF, YAML

_ENCODERS: Mapping[str, Callable[[View], bytes]] = {
    JSON: encode_in_order,
    YAML: encode_yaml,
    PROTOBUF: protobuf.encode,
}


def content_type(encoding: str) -> str:
    """Return the Content-Type of a response, in the exact form that clients compare."""
    return f"{encoding};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def document(catalog: Catalog, *, core: bool, encoding: str = JSON) -> Tagged:
    """Return the APIGroupDiscoveryList of ``/api`` or of ``/apis``.

    ``/api`` has the core group, ``/apis`` all other groups. ``encoding`` is JSON, YAML or PROTOBUF. As upstream, the
    ETag is always the ETag of the JSON form (DIS-107).
    """
    listed, tag = catalog.compute_once(f"discovery.aggregated.{core}", _core if core else _others)
    return Tagged((_ENCODERS[encoding](listed),), tag)


def _core(catalog: Catalog) -> tuple[Document, str]:
    return _list(catalog, [CORE] if CORE in published(catalog) else [])


def _others(catalog: Catalog) -> tuple[Document, str]:
    return _list(catalog, [name for name in published(catalog) if name != CORE])


def _list(catalog: Catalog, groups: list[str]) -> tuple[Document, str]:
    listed: Document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_group(catalog, name) for name in groups],
    }
    return listed, etag((encode_in_order(listed),))


def _group(catalog: Catalog, name: str) -> Document:
    versions = [
        {"version": version, "resources": [_resource(one) for one in found], "freshness": "Current"}
        for version, found in published(catalog)[name].items()
    ]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def _resource(one: Published) -> Document:
    served = one.version
    entry: Document = {
        "resource": served.names.resource,
        "responseKind": _own_kind(served),
        "scope": "Namespaced" if served.names.namespaced else "Cluster",
        "singularResource": served.published.singular,
        "verbs": list(one.verbs),
    }
    if served.published.short_names:
        entry["shortNames"] = list(served.published.short_names)
    if served.published.categories:
        entry["categories"] = list(served.published.categories)
    subresources = [_subresource(served, endpoint) for endpoint in one.subresources()]
    if subresources:
        entry["subresources"] = subresources
    return entry


def _subresource(served: ServedVersion, endpoint: Endpoint) -> Document:
    model = endpoint.model
    kind = _kind(model.group, model.version, model.kind) if endpoint.partial else _own_kind(served)
    return {"subresource": endpoint.name, "responseKind": kind, "verbs": list(endpoint.verbs)}


def _own_kind(served: ServedVersion) -> Document:
    model = served.model
    # as upstream, group and version of a built-in kind are empty
    return _kind("", "", model.kind) if model.typed else _kind(model.group, model.version, model.kind)


def _kind(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}
