"""Print versions of definitions as upstream's internal types do in errors (DIS-04)."""

from typing import Any

from apiext.documents.go_json import go_json
from apiext.schema.internal_text import internal


def versions_text(versions: Any) -> str:
    """Return the JSON of ``spec.versions`` of the stored form: null if the request did not set it."""
    return go_json(
        None if versions is None else [internal("CustomResourceDefinitionVersion", version) for version in versions]
    )
