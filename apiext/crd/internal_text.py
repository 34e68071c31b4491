"""Versions of definitions as upstream's internal types print in errors (DIS-04)."""

from typing import Any

from apiext.documents.go_json import FLAG, NUMBER, POINTER, TEXT, go_json, many, optional, struct
from apiext.schema.internal_text import internal_schema

_SCALE = struct(
    ("SpecReplicasPath", "specReplicasPath", TEXT),
    ("StatusReplicasPath", "statusReplicasPath", TEXT),
    ("LabelSelectorPath", "labelSelectorPath", POINTER),
)
_COLUMN = struct(
    ("Name", "name", TEXT),
    ("Type", "type", TEXT),
    ("Format", "format", TEXT),
    ("Description", "description", TEXT),
    ("Priority", "priority", NUMBER),
    ("JSONPath", "JSONPath", TEXT),
)
_VERSION = struct(
    ("Name", "name", TEXT),
    ("Served", "served", FLAG),
    ("Storage", "storage", FLAG),
    ("Deprecated", "deprecated", FLAG),
    ("DeprecationWarning", "deprecationWarning", POINTER),
    (
        "Schema",
        "schema",
        optional(struct(("OpenAPIV3Schema", "openAPIV3Schema", optional(internal_schema)))),
    ),
    (
        "Subresources",
        "subresources",
        optional(struct(("Status", "status", optional(struct())), ("Scale", "scale", optional(_SCALE)))),
    ),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", many(_COLUMN)),
    ("SelectableFields", "selectableFields", many(struct(("JSONPath", "jsonPath", TEXT)))),
)


def versions_text(versions: Any) -> str:
    """Return the JSON of ``spec.versions`` of the stored form: null when it was never given."""
    return go_json(None if versions is None else [_VERSION(version) for version in versions])
