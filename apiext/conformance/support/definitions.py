"""Small definitions for tests; each has its own group, so that tests are independent."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until

SPEC_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "color": {"type": "string"},
                "size": {"type": "integer", "minimum": 0},
                "note": {"type": "string", "default": "none"},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


def fresh_group() -> str:
    """Return an API group that no other test uses."""
    return f"t{secrets.token_hex(5)}.example.com"


def definition(group: str, plural: str = "widgets", *, scope: str = "Namespaced", **version: Any) -> dict[str, Any]:
    """Return a definition with one version, v1.

    ``version`` adds or replaces fields of this version.
    """
    singular = plural.removesuffix("s")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": singular, "kind": singular.capitalize(), "shortNames": []},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": SPEC_SCHEMA},
                    **version,
                }
            ],
        },
    }


def condition(document: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Return a condition of an object, None if the object does not have it."""
    found = (document.get("status") or {}).get("conditions") or []
    return next((it for it in found if it["type"] == kind), None)


def is_true(document: dict[str, Any], kind: str) -> bool:
    """Return whether an object has a condition with status True."""
    found = condition(document, kind)
    return bool(found) and found["status"] == "True"  # type: ignore[index]


def establish(api: Client, wanted: dict[str, Any]) -> dict[str, Any]:
    """Create a definition, wait until it is established and served, and return it."""
    api.post(DEFINITIONS, wanted).expect(201)
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    spec = wanted["spec"]
    served = [it["name"] for it in spec["versions"] if it["served"]]

    def established() -> dict[str, Any] | None:
        seen: dict[str, Any] = api.get(path).expect(200)
        return seen if is_true(seen, "Established") else None

    found = until(established, f"{path} is established", within=10)
    listed = [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1" for version in served]
    # if an aggregator forwards the requests, the paths of an established definition may return 404 for a moment
    until(lambda: all(api.get(it).status != 404 for it in listed), f"{path} is served", within=10)
    return found


@dataclass(frozen=True)
class Resource:
    """A custom resource that the server serves."""

    api: Client
    group: str
    plural: str
    kind: str
    version: str = "v1"
    namespaced: bool = True

    def path(self, name: str = "", namespace: str | None = "default") -> str:
        """Return the path of an object, or of the collection if ``name`` is empty.

        The namespace None stands for all namespaces.
        """
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"/apis/{self.group}/{self.version}{inside}/{self.plural}" + (f"/{name}" if name else "")

    def make(self, name: str, **spec: Any) -> dict[str, Any]:
        """Return an object for the body of a request."""
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": spec,
        }

    def create(self, name: str, namespace: str | None = "default", **spec: Any) -> dict[str, Any]:
        """Create an object; return the stored object."""
        created: dict[str, Any] = self.api.post(self.path("", namespace), self.make(name, **spec)).expect(201)
        return created


def serve(api: Client, plural: str = "widgets", *, scope: str = "Namespaced", **version: Any) -> Resource:
    """Define a resource in a new group, wait until the server serves it, and return it."""
    wanted = definition(fresh_group(), plural, scope=scope, **version)
    made = establish(api, wanted)
    return Resource(api, made["spec"]["group"], plural, made["spec"]["names"]["kind"], "v1", scope == "Namespaced")
