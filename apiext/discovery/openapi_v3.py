"""OpenAPI v3: the index of group-versions and a document for each (OAS-002…004, OAS-008)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import orjson

from apiext.catalog.served import Catalog, ServedVersion
from apiext.discovery import types
from apiext.discovery.aggregated import Tagged
from apiext.discovery.groups import Published, published
from apiext.discovery.operations import BODY_TYPES, Operation, PathItem, path_items, tag
from apiext.discovery.schemas import list_schema, object_schema, reference
from apiext.documents.document import Document
from apiext.documents.encoding import encode_in_order

_HEAD = b'{"openapi":"3.0.0","info":{"title":"Kubernetes CRD Swagger","version":"v0.1.0"},"paths":{'
_FORMAT = "1"  # grows when the same definition is published differently


@dataclass(frozen=True, slots=True)
class _Part:
    """What one served version adds to its document: encoded members by key."""

    paths: dict[str, bytes]
    schemas: dict[str, bytes]
    scale: bool


_FINGERPRINTS: WeakKeyDictionary[ServedVersion, bytes] = WeakKeyDictionary()
_PARTS: WeakKeyDictionary[ServedVersion, _Part] = WeakKeyDictionary()
"""Parts live as long as their version is served, so a changed definition rebuilds only its own."""


def index(catalog: Catalog) -> Tagged:
    """Return the document of ``/openapi/v3``: a relative URL with the hash of each group-version's document."""
    return catalog.remember("discovery.v3", _index)  # type: ignore[no-any-return]  # an untyped cache


def document(catalog: Catalog, path: str) -> Tagged | None:
    """Return the document of a group-version (``apis/<group>/<version>`` or ``api/v1``), None when it has none.

    Its ETag is the quoted hash of the index.
    """
    found = _versions(catalog).get(path)
    if found is None:
        return None
    return catalog.remember(  # type: ignore[no-any-return]  # an untyped cache
        f"discovery.v3/{path}", lambda _: Tagged(_body(found), f'"{_hash(found)}"')
    )


def document_hash(catalog: Catalog, path: str) -> str | None:
    """Return the hash of a group-version's document without building it."""
    found = _versions(catalog).get(path)
    return _hash(found) if found is not None else None


def _versions(catalog: Catalog) -> dict[str, Sequence[Published]]:
    return catalog.remember(  # type: ignore[no-any-return]  # an untyped cache
        "discovery.v3.versions",
        lambda now: {
            f"apis/{group}/{version}" if group else f"api/{version}": found
            for group, versions in published(now).items()
            for version, found in versions.items()
        },
    )


def _index(catalog: Catalog) -> Tagged:
    paths = {
        path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(found)}"}
        for path, found in sorted(_versions(catalog).items())
    }
    body = orjson.dumps({"paths": paths})
    return Tagged(body, f'"{hashlib.sha512(body).hexdigest().upper()}"')


def _hash(found: Sequence[Published]) -> str:
    """Return a hash of what the document is made from: definitions as they are served, not their status (OAS-009)."""
    digest = hashlib.sha512(_FORMAT.encode())
    for one in found:
        digest.update(_fingerprint(one.version))
    return digest.hexdigest().upper()


def _fingerprint(served: ServedVersion) -> bytes:
    known = _FINGERPRINTS.get(served)
    if known is None:
        endpoints = [(name, one.verbs, one.kind) for name, one in served.endpoints.items()]
        names = (served.group, served.version, served.resource, served.kind, served.list_kind, served.namespaced)
        made_of = (names, served.verbs, endpoints, list(served.selectable), served.typed, served.open_api)
        known = hashlib.blake2b(orjson.dumps(made_of), digest_size=32).digest()
        _FINGERPRINTS[served] = known
    return known


def _body(found: Sequence[Published]) -> bytes:
    parts = [_part(one.version) for one in found]
    paths: dict[str, bytes] = {}
    schemas: dict[str, bytes] = {}
    for part in parts:
        paths |= part.paths
        schemas |= part.schemas
    shared = types.shared_types(scale=any(part.scale for part in parts))
    schemas |= {name: orjson.dumps(schema) for name, schema in shared.items()}
    return b"".join((_HEAD, _members(paths), b'},"components":{"schemas":{', _members(schemas), b"}}}"))


def _members(encoded: dict[str, bytes]) -> bytes:
    return b",".join(orjson.dumps(name) + b":" + encoded[name] for name in sorted(encoded))


def _part(served: ServedVersion) -> _Part:
    found = _PARTS.get(served)
    if found is None:
        found = _PARTS[served] = _Part(
            {item.path: encode_in_order(_path_item(served, item)) for item in path_items(served)},
            {
                types.model_name(served, served.kind): encode_in_order(object_schema(served, v2=False)),
                types.model_name(served, served.list_kind): encode_in_order(list_schema(served, v2=False)),
            },
            any(endpoint.kind == "Scale" for endpoint in served.endpoints.values()),
        )
    return found


def _path_item(served: ServedVersion, item: PathItem) -> Document:
    found = {one.method: _operation(served, one) for one in item.operations}
    return found | {"parameters": [_parameter(key, served.kind) for key in item.parameters]}


def _operation(served: ServedVersion, one: Operation) -> Document:
    found: Document = {
        "tags": [tag(served)],
        "description": one.description,
        "operationId": one.operation_id,
    }
    if one.parameters:
        found["parameters"] = [_parameter(key, served.kind) for key in one.parameters]
    if one.body:
        media_types = sorted(one.consumes) if one.method == "patch" else one.consumes
        found["requestBody"] = {"content": _content(one.body, media_types)}
        if one.body_required:
            found["requestBody"]["required"] = True
    found["responses"] = {
        str(code): {"description": text, **({"content": _content(model, BODY_TYPES)} if model else {})}
        for code, text, model in one.response_texts()
    }
    found["x-kubernetes-action"] = one.action
    found["x-kubernetes-group-version-kind"] = {
        "group": served.group,
        "version": served.version,
        "kind": served.kind,
    }
    return found


def _content(model: str, media_types: Sequence[str]) -> Document:
    return {media_type: {"schema": {"$ref": reference(model, v2=False)}} for media_type in media_types}


def _parameter(key: str, kind: str) -> Document:
    known = types.data().parameters[key]
    found: Document = {
        "name": known.name,
        "in": known.place,
        "description": known.description.format(kind=kind) if key == "name" else known.description,
    }
    if known.required:
        found["required"] = True
    return found | {"schema": {"type": known.type, "uniqueItems": True}}
