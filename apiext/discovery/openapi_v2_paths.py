"""Encoder of paths, operations and parameters of OpenAPI v2 (OAS-007, OAS-008)."""

from collections.abc import Callable

from apiext.discovery import types
from apiext.discovery.openapi_paths import Parameters, Paths
from apiext.discovery.operations import Operation
from apiext.discovery.schemas import V2_PREFIX, body_schema
from apiext.documents.document import Document, View

# upstream's names of the two shared bodies, which never change
_PATCH_BODY = "body-78PwaGsr"
_DELETE_BODY = "body-2Y1dVQaQ"


def _parameter(key: str, kind: str) -> Document:
    """Return a parameter: a reference for a shared parameter, else the complete parameter.

    dryRun and fieldValidation are not shared, since kubectl reads them in each operation.
    """
    known = types.data().parameters[key]
    return _to_shared(known.shared) if known.shared else _written_out(known, kind)


def shared_parameters(connections: bool) -> dict[str, View]:
    """Return name → shared parameter.

    If ``connections``, include the parameters of endpoints whose requests upstream forwards, such as exec.
    """
    found: dict[str, View] = {
        _DELETE_BODY: {"name": "body", "in": "body", "schema": {"$ref": V2_PREFIX + types.DELETE_OPTIONS}},
        _PATCH_BODY: _body(types.PATCH),
    }
    for known in types.data().parameters.values():
        if known.shared and (connections or not known.options):
            found[known.shared] = _written_out(known, "")
    return dict(sorted(found.items()))


def _operation(one: Operation, kind: str, parameter: Parameters) -> Document:
    found: Document = {
        "description": one.description,
        "consumes": list(one.consumes),
        "produces": list(one.produces),
        "schemes": ["https"],
        "tags": [one.tag],
        "operationId": one.operation_id,
    }
    parameters = [_BODIES.get(one.body, _body)(one.body)] if one.body else []
    parameters += [parameter(key, kind) for key in one.parameters]
    if parameters:
        found["parameters"] = parameters
    found["responses"] = {
        str(code): {"description": text, **({"schema": body_schema(model, v2=True)} if model else {})}
        for code, text, model in one.response_texts()
    }
    return found | one.extensions(as_map=True)


def _body(model: str) -> Document:
    return {"name": "body", "in": "body", "required": True, "schema": {"$ref": V2_PREFIX + model}}


_BODIES: dict[str, Callable[[str], Document]] = {
    types.PATCH: lambda _: _to_shared(_PATCH_BODY),
    types.DELETE_OPTIONS: lambda _: _to_shared(_DELETE_BODY),
}


def _to_shared(name: str) -> Document:
    return {"$ref": f"#/parameters/{name}"}


def _written_out(known: types.Parameter, kind: str) -> Document:
    found: Document = {
        "uniqueItems": True,
        "type": known.type,
        "description": known.description.format(kind=kind) if known.name == "name" else known.description,
        "name": known.name,
        "in": known.place,
    }
    return found | {"required": True} if known.required else found


PATHS = Paths(_operation, _parameter)
