"""OpenAPI v2: one document of everything served, as JSON and as the protobuf that kubectl reads (OAS-001, OAS-005)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import orjson

from apiext.catalog.served import Catalog, ServedVersion
from apiext.discovery import openapi_proto, types
from apiext.discovery.aggregated import Tagged, etag
from apiext.discovery.groups import published
from apiext.discovery.operations import BODY_TYPES, Operation, PathItem, path_items, tag
from apiext.discovery.schemas import V2_PREFIX, list_schema, object_schema, reference
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode_in_order

PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The Content-Type of the protobuf answer; clients ask for it also with ``@`` in place of the second dot (OAS-001)."""
TITLE = "Generic API Server"
_PATCH_BODY = "body-78PwaGsr"  # names under which upstream shares the two bodies that never change
_DELETE_BODY = "body-2Y1dVQaQ"


@dataclass(slots=True)
class _Part:
    """What one served version adds: encoded members by key, and the same as protobuf when that was asked for."""

    paths: dict[str, bytes]
    definitions: dict[str, bytes]
    protobuf: bytes | None = None


_PARTS: WeakKeyDictionary[ServedVersion, _Part] = WeakKeyDictionary()
"""Parts live as long as their version is served, so a changed definition rebuilds only its own."""


def document(catalog: Catalog, version: str) -> Tagged:
    """Return the JSON document of ``/openapi/v2``; ``version`` is the server's, as ``1.36``."""
    return catalog.remember("discovery.v2", lambda now: _json(now, version))  # type: ignore[no-any-return]  # untyped


def protobuf(catalog: Catalog, version: str) -> Tagged:
    """Return the same document as protobuf (``PROTOBUF``)."""
    return catalog.remember("discovery.v2.proto", lambda now: _protobuf(now, version))  # type: ignore[no-any-return]


def _versions(catalog: Catalog) -> Iterable[ServedVersion]:
    for versions in published(catalog).values():
        for found in versions.values():
            yield from (one.version for one in found)


def _json(catalog: Catalog, version: str) -> Tagged:
    paths: dict[str, bytes] = {}
    definitions = {name: orjson.dumps(types.in_v2(schema)) for name, schema in types.shared_types(scale=True).items()}
    for served in _versions(catalog):
        part = _part(served)
        paths |= part.paths
        definitions |= part.definitions
    head = orjson.dumps({"swagger": "2.0", "info": {"title": TITLE, "version": version}})
    body = b"".join(
        (
            head[:-1],
            b',"paths":{',
            _members(paths),
            b'},"definitions":{',
            _members(definitions),
            b'},"parameters":',
            orjson.dumps(_shared_parameters()),
            b"}",
        )
    )
    return Tagged(body, etag(body))


def _protobuf(catalog: Catalog, version: str) -> Tagged:
    # Serialised messages of one type merge by standing one after the other.
    shared = {name: types.in_v2(schema) for name, schema in types.shared_types(scale=True).items()}
    head = openapi_proto.document({}, shared, _shared_parameters(), title=TITLE, version=version)
    body = b"".join((head, *(_part_protobuf(served) for served in _versions(catalog))))
    return Tagged(body, etag(body))


def _members(encoded: dict[str, bytes]) -> bytes:
    return b",".join(orjson.dumps(name) + b":" + encoded[name] for name in sorted(encoded))


def _part(served: ServedVersion) -> _Part:
    found = _PARTS.get(served)
    if found is None:
        found = _PARTS[served] = _Part(
            {path: encode_in_order(item) for path, item in _paths(served).items()},
            {name: encode_in_order(schema) for name, schema in _definitions(served).items()},
        )
    return found


def _part_protobuf(served: ServedVersion) -> bytes:
    part = _part(served)
    if part.protobuf is None:
        part.protobuf = openapi_proto.document(_paths(served), _definitions(served), {})
    return part.protobuf


def _definitions(served: ServedVersion) -> dict[str, Document]:
    return {
        types.model_name(served, served.kind): object_schema(served, v2=True),
        types.model_name(served, served.list_kind): list_schema(served, v2=True),
    }


def _paths(served: ServedVersion) -> dict[str, Document]:
    return {item.path: _path_item(served, item) for item in path_items(served)}


def _path_item(served: ServedVersion, item: PathItem) -> Document:
    found = {one.method: _operation(served, one) for one in item.operations}
    return found | {"parameters": [_parameter(key, served.kind) for key in item.parameters]}


def _operation(served: ServedVersion, one: Operation) -> Document:
    found: Document = {
        "description": one.description,
        "consumes": list(one.consumes),
        "produces": list(BODY_TYPES),
        "schemes": ["https"],
        "tags": [tag(served)],
        "operationId": one.operation_id,
    }
    parameters = [_BODIES.get(one.body, _body)(one.body)] if one.body else []
    parameters += [_parameter(key, served.kind) for key in one.parameters]
    if parameters:
        found["parameters"] = parameters
    found["responses"] = {
        str(code): {"description": text, **({"schema": {"$ref": reference(model, v2=True)}} if model else {})}
        for code, text, model in one.response_texts()
    }
    found["x-kubernetes-action"] = one.action
    found["x-kubernetes-group-version-kind"] = {
        "group": served.group,
        "version": served.version,
        "kind": served.kind,
    }
    return found


def _body(model: str) -> Document:
    return {"name": "body", "in": "body", "required": True, "schema": {"$ref": V2_PREFIX + model}}


_BODIES: dict[str, Callable[[str], Document]] = {
    types.PATCH: lambda _: _to_shared(_PATCH_BODY),
    types.DELETE_OPTIONS: lambda _: _to_shared(_DELETE_BODY),
}


def _to_shared(name: str) -> Document:
    return {"$ref": f"#/parameters/{name}"}


def _parameter(key: str, kind: str) -> Document:
    """Return a parameter; dryRun and fieldValidation are written out, where kubectl looks for them."""
    known = types.data().parameters[key]
    return _to_shared(known.shared) if known.shared else _written_out(known, kind)


def _written_out(known: types.Parameter, kind: str) -> Document:
    found: Document = {
        "uniqueItems": True,
        "type": known.type,
        "description": known.description.format(kind=kind) if known.name == "name" else known.description,
        "name": known.name,
        "in": known.place,
    }
    return found | {"required": True} if known.required else found


def _shared_parameters() -> dict[str, View]:
    found: dict[str, View] = {
        _DELETE_BODY: {"name": "body", "in": "body", "schema": {"$ref": V2_PREFIX + types.DELETE_OPTIONS}},
        _PATCH_BODY: _body(types.PATCH),
    }
    for known in types.data().parameters.values():
        if known.shared:
            found[known.shared] = _written_out(known, "")
    return dict(sorted(found.items()))
