"""The OpenAPI paths that serve no resource: discovery and the server's version (OAS-002)."""

from collections.abc import Mapping

from apiext.catalog.served import Catalog
from apiext.discovery import types
from apiext.discovery.groups import CORE, published
from apiext.discovery.operations import (
    Operation,
    PathItem,
    group_words,
    identifier,
    operation_id,
    tag,
)
from apiext.meta.media_types import ENCODINGS, JSON

_META = types.META
_VERSION = "io.k8s.apimachinery.pkg.version.Info"


def pages(catalog: Catalog) -> Mapping[str, PathItem]:
    """Return key of the OpenAPI v3 document → path item, for discovery and for the version.

    As upstream, only groups with built-in kinds have a path ``/apis/GROUP/``.
    """
    found = {
        "api": _get("/api/", "getCoreAPIVersions", "get available API versions", "core", f"{_META}.APIVersions"),
        "apis": _get("/apis/", "getAPIVersions", "get available API versions", "apis", f"{_META}.APIGroupList"),
        "version": _get(
            "/version/", "getCodeVersion", "get the version information for this server", "version", _VERSION
        ),
    }
    for group in catalog.builtin_groups:
        if group != CORE:
            found[f"apis/{group}"] = _group(group)
    return dict(sorted(found.items()))


def resources(catalog: Catalog, group: str, version: str) -> list[PathItem]:
    """Return the path of the resource list of a group and version, as a list of one path.

    As upstream, return an empty list if the group has no built-in kinds.
    """
    if group not in catalog.builtin_groups or version not in published(catalog).get(group, ()):
        return []
    path = f"/apis/{group}/{version}/" if group else f"/api/{version}/"
    identity = operation_id("get", group, version, "APIResources")
    return [_get(path, identity, "get available resources", tag(group, version), f"{_META}.APIResourceList")]


def _group(group: str) -> PathItem:
    words = identifier(group_words(group))
    identity = f"get{words[:1].upper()}{words[1:]}APIGroup"
    return _get(f"/apis/{group}/", identity, "get information of a group", words, f"{_META}.APIGroup")


def _get(path: str, identity: str, description: str, tag: str, model: str) -> PathItem:
    media_types = (JSON,) if model == _VERSION else ENCODINGS
    operation = Operation(
        "get", "", identity, description, tag, {200: model, 401: ""}, consumes=media_types, produces=media_types
    )
    return PathItem(path, (operation,))
