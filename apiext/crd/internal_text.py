"""Print versions of definitions as upstream prints its internal types in errors (DIS-04)."""

from typing import Any

from apiext.documents.go_json import go_json
from apiext.schema.internal_text import internal


def versions_text(versions: Any) -> str:
    """Return ``spec.versions`` as JSON in upstream's internal form.

    Return "null" if the request did not set this field.
    """
    return go_json(
        None if versions is None else [internal("CustomResourceDefinitionVersion", version) for version in versions]
    )
