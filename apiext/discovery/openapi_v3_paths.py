"""Encoder of paths, operations and parameters of OpenAPI v3 (OAS-007, OAS-008)."""

from collections.abc import Iterable

from apiext.discovery import types
from apiext.discovery.openapi_paths import Parameters, Paths
from apiext.discovery.operations import Operation
from apiext.discovery.schemas import body_schema
from apiext.documents.document import Document


def _parameter(key: str, kind: str) -> Document:
    """Return a parameter. Only the description of the parameter ``name`` contains the kind."""
    known = types.data().parameters[key]
    found: Document = {
        "name": known.name,
        "in": known.place,
        "description": known.description.format(kind=kind) if key == "name" else known.description,
    }
    if known.required:
        found["required"] = True
    return found | {"schema": {"type": known.type, "uniqueItems": True}}


def _operation(one: Operation, kind: str, parameter: Parameters) -> Document:
    found: Document = {"tags": [one.tag], "description": one.description, "operationId": one.operation_id}
    if one.parameters:
        found["parameters"] = [parameter(key, kind) for key in one.parameters]
    if one.body:
        found["requestBody"] = {"content": _content(one.body, one.consumes)}
        if one.body_required:
            found["requestBody"]["required"] = True
    found["responses"] = {
        str(code): {"description": text, **({"content": _content(model, one.produces)} if model else {})}
        for code, text, model in one.response_texts()
    }
    return found | one.extensions()


def _content(model: str, media_types: Iterable[str]) -> Document:
    return {media_type: {"schema": body_schema(model, v2=False)} for media_type in sorted(media_types)}


PATHS = Paths(_operation, _parameter)
