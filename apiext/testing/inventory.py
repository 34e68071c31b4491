"""List the objects of a server, and delete them between tests."""

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from apiext.testing import limits
from apiext.tools.api import Api

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
METADATA = "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES = "/api/v1/namespaces"
_ADMISSION = "/apis/admissionregistration.k8s.io/"  # group of webhooks and policies, which may deny later requests

_PLAIN = ":"  # not escaped in paths, since names of roles contain colons
# The server removes this finalizer itself, after it has deleted the objects of the definition.
_CLEANED = ("customresourcecleanup.apiextensions.k8s.io",)


class StillThere(Exception):
    """Objects that could not be deleted; the text names some of them."""


class Resource(Struct, frozen=True):
    """A resource.

    ``collections`` has a path for each served version, beginning with the preferred version.
    """

    group: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    collections: tuple[str, ...]  # paths without a namespace

    def path(self, collection: str, namespace: str, name: str) -> str:
        """Return the path of an object."""
        if namespace:
            base, _, plural = collection.rpartition("/")
            collection = f"{base}/namespaces/{quote(namespace, safe='')}/{plural}"
        return f"{collection}/{quote(name, safe=_PLAIN)}"


def resources(api: Api) -> list[Resource]:
    """Return the resources of a server, from aggregated discovery."""
    found: dict[tuple[str, str], Resource] = {}
    for root in ("/api", "/apis"):
        for group in api.get(root, DISCOVERY).document.get("items") or ():
            name = (group.get("metadata") or {}).get("name") or ""
            for version in group.get("versions") or ():
                for one in version.get("resources") or ():
                    base = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                    key = (name, one["resource"])
                    known = found.get(key)
                    found[key] = Resource(
                        name,
                        one["resource"],
                        (one.get("responseKind") or {}).get("kind") or "",
                        one.get("scope") == "Namespaced",
                        frozenset(one.get("verbs") or ()),
                        (*(known.collections if known else ()), f"{base}/{one['resource']}"),
                    )
    return list(found.values())


def objects(api: Api) -> dict[str, Mapping[str, Any]]:
    """Return path → metadata of all objects that can be listed and deleted."""
    found: dict[str, Mapping[str, Any]] = {}
    for resource in resources(api):
        if resource.verbs >= {"list", "delete"}:
            found.update(_listed(api, resource))
    return found


def _listed(api: Api, resource: Resource) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # If a conversion webhook fails, try the next version: the list of the storage version needs no webhook.
    for collection in resource.collections:
        answer = api.get(collection, METADATA)
        if answer.code == 200:
            for item in answer.document.get("items") or ():
                metadata = item["metadata"]
                yield resource.path(collection, metadata.get("namespace") or "", metadata["name"]), metadata
            return


def empty(api: Api, kept: frozenset[str]) -> None:
    """Delete all objects except those at the paths ``kept``.

    Remove the finalizers of the deleted objects. Raise StillThere if objects are left after limits.RESET_WAIT seconds.
    """
    deadline, wait = time.monotonic() + limits.RESET_WAIT, 0.005
    deleted: set[str] = set()
    while True:
        left = {path: metadata for path, metadata in objects(api).items() if path not in kept}
        if not left:
            return
        if time.monotonic() > deadline:
            raise StillThere(f"{len(left)} objects could not be deleted: {', '.join(sorted(left)[:5])}")
        for path in sorted(left, key=_order):
            if path not in deleted and not _is_cascaded(path, deleted):
                deleted.add(path)
                api.delete(path, propagationPolicy="Background")
            elif left[path].get("deletionTimestamp") and _held(left[path]):
                api.patch(path, {"metadata": {"finalizers": _CLEANED if path.startswith(DEFINITIONS) else None}})
        time.sleep(wait)
        wait = min(2 * wait, 0.2)


def _held(metadata: Mapping[str, Any]) -> bool:
    """Return whether an object has finalizers that the server itself does not remove."""
    return bool(set(metadata.get("finalizers") or ()).difference(_CLEANED))


def _order(path: str) -> int:
    if path.startswith(_ADMISSION):
        return 0
    return 1 if path.startswith((f"{DEFINITIONS}/", f"{NAMESPACES}/")) and path.count("/") <= 5 else 2


def _is_cascaded(path: str, deleted: set[str]) -> bool:
    """Return whether ``deleted`` contains the namespace or the definition of an object.

    Then the server also deletes the object.
    """
    steps = path.split("/")
    if "namespaces" in steps[:5] and len(steps) > steps.index("namespaces") + 2:
        space = steps[steps.index("namespaces") + 1]
        if f"{NAMESPACES}/{space}" in deleted:
            return True
    if steps[1] != "apis":
        return False
    plural = steps[-2]
    return f"{DEFINITIONS}/{plural}.{steps[2]}" in deleted
