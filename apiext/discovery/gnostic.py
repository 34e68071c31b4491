"""What the protobuf forms of OpenAPI v2 and v3 share: where messages come from, plain keywords, and YAML inside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from apiext.documents.document import View

METHODS = ("get", "put", "post", "delete", "patch")
PLAIN: Mapping[str, str] = {  # schema keyword → field
    "format": "format",
    "title": "title",
    "description": "description",
    "multipleOf": "multiple_of",
    "maximum": "maximum",
    "exclusiveMaximum": "exclusive_maximum",
    "minimum": "minimum",
    "exclusiveMinimum": "exclusive_minimum",
    "maxLength": "max_length",
    "minLength": "min_length",
    "pattern": "pattern",
    "maxItems": "max_items",
    "minItems": "min_items",
    "uniqueItems": "unique_items",
    "maxProperties": "max_properties",
    "minProperties": "min_properties",
}
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def message_class(file: str, name: str) -> Any:
    """Return the class of a message from a descriptor set under ``pb/``."""
    # private: another OpenAPI library in the process may register the same names in the default pool
    pool = descriptor_pool.DescriptorPool()
    raw = (Path(__file__).parent / "pb" / file).read_bytes()
    for found in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(found)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def set_plain(message: Any, keyword: str, value: Any) -> None:
    """Set the field of a plain keyword; bounds of sizes are cut to what a field holds."""
    field = PLAIN[keyword]
    if field.startswith(("min_", "max_")):
        value = max(_INT64_MIN, min(int(value), _INT64_MAX))
    setattr(message, field, value)


def set_extensions(entries: Any, values: View) -> None:
    """Add the members whose names begin with ``x-``."""
    for name, value in values.items():
        if name.startswith("x-"):
            entries.add(name=name).value.yaml = yaml(value)


def set_external_docs(message: Any, value: View) -> None:
    """Set a reference to documentation elsewhere."""
    message.external_docs.description = value.get("description") or ""
    message.external_docs.url = value.get("url") or ""


def yaml(value: Any) -> str:
    """Return a value as YAML; JSON on one line is YAML."""
    return orjson.dumps(value).decode() + "\n"
