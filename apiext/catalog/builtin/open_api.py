"""OpenAPI schemas of CustomResourceDefinition and Namespace.

They come from data files in go_types/types.
"""

from apiext.documents.document import Document
from apiext.go_types.tables import types_of


def definition_schema(version: str) -> Document:
    """Return the schema of a CustomResourceDefinition in v1 or v1beta1."""
    return types_of("apiextensions" if version == "v1" else f"apiextensions_{version}").schema(
        "CustomResourceDefinition"
    )


def namespace_schema() -> Document:
    """Return the schema of a Namespace."""
    return types_of("namespace").schema("Namespace")
