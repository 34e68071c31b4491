"""The OpenAPI schemas of definitions and namespaces, from the tables of their types."""

import hashlib
from functools import cache
from importlib.resources import files

from apiext.catalog.builtin.go_types import types_of
from apiext.documents.document import Document


def definition_schema(version: str) -> Document:
    """Return the schema of a CustomResourceDefinition in v1 or v1beta1."""
    return types_of("apiextensions" if version == "v1" else f"apiextensions_{version}").schema(
        "CustomResourceDefinition"
    )


def namespace_schema() -> Document:
    """Return the schema of a Namespace."""
    return types_of("namespace").schema("Namespace")


@cache
def digest() -> str:
    """Return a text that changes with the schemas of all built-in kinds; nothing is parsed for it."""
    found = hashlib.blake2b(digest_size=16)
    for file in sorted((files(__package__) / "compiled").iterdir(), key=lambda one: one.name):
        found.update(file.read_bytes())
    return found.hexdigest()
