"""The OpenAPI schemas of definitions and namespaces, from the tables of their types."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from apiext.catalog.builtin.go_types import Types, read_yaml, types_of
from apiext.documents.document import Document

SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
"""The model of a schema in a definition; it holds schemas itself, so that it can only be referred to."""
_BESIDE = "#/components/schemas/"


def definition_schema(version: str) -> Document:
    """Return the schema of a CustomResourceDefinition in v1 or v1beta1."""
    if version == "v1":
        types = types_of("apiextensions")
    else:
        types = Types({**read_yaml("types/apiextensions.yaml"), **read_yaml("types/apiextensions_v1beta1.yaml")})
    found = types.schema("CustomResourceDefinition")
    spec = found["properties"]["spec"]["properties"]
    for holder in (spec.get("validation"), spec["versions"]["items"]["properties"]["schema"]):
        if holder is not None:
            schema = holder["properties"]["openAPIV3Schema"]
            holder["properties"]["openAPIV3Schema"] = {
                "description": schema["description"],
                "allOf": [{"$ref": _BESIDE + SCHEMA}],
            }
    return found


def namespace_schema() -> Document:
    """Return the schema of a Namespace."""
    return types_of("namespace").schema("Namespace")


@cache
def digest() -> str:
    """Return a text that changes with the schemas of all built-in kinds; nothing is parsed for it."""
    found = hashlib.blake2b(digest_size=16)
    for file in _data_files(files(__package__)):
        found.update(file.read_bytes())
    return found.hexdigest()


def _data_files(directory: Traversable) -> Iterator[Traversable]:
    for entry in sorted(directory.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            yield from _data_files(entry)
        elif entry.name.endswith(".yaml"):
            yield entry
