"""Catalogs for discovery tests, compiled from definitions."""

from typing import Any

from apiext.catalog.compile import compile_definition
from apiext.catalog.served import Catalog

GROUP = "stable.example.com"


def definition(plural: str, kind: str, versions: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """Return a stored, established definition; versions override the fields of a served version."""
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    names |= spec.pop("names", {})
    group = spec.pop("group", GROUP)
    rows = [{"served": True, "storage": index == 0, **version} for index, version in enumerate(versions)]
    conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
    conditions += [{"type": name, "status": "True"} for name in spec.pop("also", ())]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "uid": f"uid-{plural}", "generation": 1},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": rows, **spec},
        "status": {"acceptedNames": names, "conditions": conditions, "storedVersions": [rows[0]["name"]]},
    }


def catalog(*definitions: dict[str, Any]) -> Catalog:
    """Return the catalog that serves the definitions."""
    found = Catalog()
    for document in definitions:
        found = found.with_resource(compile_definition(document))
    return found


ANY = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
BOTH = {"status": {}, "scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}}
WIDGETS = definition(
    "widgets",
    "Widget",
    [
        {"name": "v1", "schema": ANY, "subresources": BOTH},
        {"name": "v1beta1", "schema": ANY, "subresources": BOTH},
        {"name": "v2alpha1", "schema": ANY, "served": False},
    ],
    names={"singular": "wdgt", "shortNames": ["wd", "wdg"], "categories": ["all", "mine"]},
)
GADGETS = definition(
    "gadgets", "Gadget", [{"name": "v1beta1", "schema": ANY}, {"name": "v2", "schema": ANY}], scope="Cluster"
)
