"""The OpenAPI v2 document of all resources, as JSON and as the protobuf that kubectl reads.

See OAS-001, OAS-005.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

import orjson
from msgspec import Struct

from apiext.catalog.served import Catalog, ServedVersion
from apiext.discovery import openapi_v2_proto, own_paths, types
from apiext.discovery.fingerprints import common, fingerprint, published_parts
from apiext.discovery.groups import Published, published
from apiext.discovery.openapi_v2_paths import PATHS, shared_parameters
from apiext.discovery.operations import PathItem, path_items
from apiext.discovery.schemas import kinds, model_names, model_schemas
from apiext.discovery.tagged import Tagged, etag, joined, separated
from apiext.documents.document import Document
from apiext.documents.encoding import encode_in_order


class _Part(Struct):
    """The part of the document for one served version.

    ``paths`` and ``definitions`` are the entries of this version in the fields of the same names, as JSON without
    braces. ``protobuf`` is the same part as protobuf, None before the first request for protobuf.
    """

    paths: bytes
    definitions: bytes
    protobuf: bytes | None = None


_PARTS: WeakKeyDictionary[ServedVersion, _Part] = WeakKeyDictionary()
"""Served version → its part.

An entry exists while the version is served. So a change of a definition rebuilds only the parts of its versions.
"""


def document(catalog: Catalog, version: str) -> Tagged:
    """Return the JSON document of ``/openapi/v2``.

    ``version`` is the version of the server, such as ``1.37``.
    """
    return catalog.compute_once("discovery.v2", lambda now: Tagged(tuple(_json(now, version)), tag(now, version)))


def protobuf(catalog: Catalog, version: str) -> Tagged:
    """Return the document of ``/openapi/v2`` as protobuf; its ETag is that of the JSON."""
    return catalog.compute_once(
        "discovery.v2.proto", lambda now: Tagged(tuple(_protobuf(now, version)), tag(now, version))
    )


def tag(catalog: Catalog, version: str) -> str:
    """Return the ETag of the document, without building the document."""
    return catalog.compute_once(
        "discovery.v2.tag", lambda now: etag((common(), version.encode(), *map(fingerprint, _everything(now))))
    )


def definitions(catalog: Catalog) -> dict[str, bytes]:
    """Return name of a CustomResourceDefinition → fingerprints of its versions in the document."""
    return published_parts(_everything(catalog))


def _everything(catalog: Catalog) -> Iterator[Published]:
    for versions in published(catalog).values():
        for found in versions.values():
            yield from found


def _own(catalog: Catalog) -> list[PathItem]:
    """Return the paths that serve no resource: discovery, and the version of the server."""
    lists = [
        item
        for group, versions in published(catalog).items()
        for version in versions
        for item in own_paths.resources(catalog, group, version)
    ]
    return [*own_paths.pages(catalog).values(), *lists]


# --- JSON ---


def _json(catalog: Catalog, version: str) -> list[bytes]:
    parts = [_part(one.version) for one in _everything(catalog)]
    own = joined((item.path, PATHS.encoded(item)) for item in _own(catalog))
    head = orjson.dumps({"swagger": "2.0", "info": {"title": types.TITLE, "version": version}})
    return [
        head[:-1] + b',"paths":{',
        *separated((own, *(part.paths for part in parts))),
        b'},"definitions":{',
        *separated((_encoded_types(_models(catalog)), *(part.definitions for part in parts))),
        b'},"parameters":',
        orjson.dumps(shared_parameters(_connects(catalog))),
        b"}",
    ]


@lru_cache(1)
def _types(models: tuple[str, ...]) -> Mapping[str, Document]:
    every = {**types.shared_types(scale=True), **types.own_types(types.data().own)}
    return {name: types.in_v2(schema) for name, schema in sorted(every.items())} | model_schemas(models, v2=True)


@lru_cache(1)
def _encoded_types(models: tuple[str, ...]) -> bytes:
    return joined((name, orjson.dumps(schema)) for name, schema in _types(models).items())


def _models(catalog: Catalog) -> tuple[str, ...]:
    """Return the names of the models of built-in kinds that the document contains."""
    return model_names(one.version for one in _everything(catalog))


def _connects(catalog: Catalog) -> bool:
    """Report whether a resource has an endpoint that upstream forwards, such as exec or proxy."""
    return any(endpoint.connects for one in _everything(catalog) for endpoint in one.version.endpoints.values())


def _part(served: ServedVersion) -> _Part:
    found = _PARTS.get(served)
    if found is None:
        found = _PARTS[served] = _Part(
            joined((item.path, PATHS.encoded(item)) for item in path_items(served)),
            joined((name, encode_in_order(schema)) for name, schema in kinds(served, v2=True).items()),
        )
    return found


# --- protobuf ---


def _protobuf(catalog: Catalog, version: str) -> Iterable[bytes]:
    # In protobuf, the concatenation of serialized messages merges them, so each part can be serialized separately.
    head = openapi_v2_proto.document(
        {}, _types(_models(catalog)), shared_parameters(_connects(catalog)), title=types.TITLE, version=version
    )
    own = {item.path: PATHS.item(item) for item in _own(catalog)}
    return [
        head,
        openapi_v2_proto.document(own, {}, {}),
        *(_part_protobuf(one.version) for one in _everything(catalog)),
    ]


def _part_protobuf(served: ServedVersion) -> bytes:
    part = _part(served)
    if part.protobuf is None:
        paths = {item.path: PATHS.item(item) for item in path_items(served)}
        part.protobuf = openapi_v2_proto.document(paths, kinds(served, v2=True), {})
    return part.protobuf
