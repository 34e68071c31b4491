"""The OpenAPI v3 index, and the documents for group-versions and for paths of the server.

See OAS-002…004.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

import orjson
from msgspec import Struct

from apiext.catalog.endpoints import SCALE_MODEL
from apiext.catalog.served import Catalog, ServedVersion
from apiext.discovery import limits, openapi_v3_proto, own_paths, types
from apiext.discovery.fingerprints import common, fingerprint, published_parts
from apiext.discovery.groups import Published, published
from apiext.discovery.openapi_v3_paths import PATHS
from apiext.discovery.operations import PathItem, path_items
from apiext.discovery.schemas import kinds, model_names, model_schemas
from apiext.discovery.tagged import Tagged, etag, joined, separated
from apiext.documents.document import View
from apiext.documents.encoding import encode_in_order
from apiext.go_types.tables import model_files

# title and version of the documents of groups without built-in kinds, as recorded from upstream
_CUSTOM = ("Kubernetes CRD Swagger", "v0.1.0")


class _Page(Struct, frozen=True):
    """The content of a document: its resources (``served``) and other paths (``own``).

    ``about`` is the (title, version) of the document.
    """

    served: Sequence[Published]
    own: Sequence[PathItem]
    about: tuple[str, str]


class _Part(Struct):
    """The part of a document for one served version: its ``paths`` and ``schemas`` as JSON.

    ``own`` are the names of the types of ``openapi_own.yaml`` to which the schemas of a built-in kind refer.
    ``protobuf`` is set by the first request for the protobuf form.
    """

    paths: bytes
    schemas: bytes
    own: Sequence[str]
    protobuf: bytes | None = None


_PARTS: WeakKeyDictionary[ServedVersion, _Part] = WeakKeyDictionary()
"""Served version → part. An entry exists while the version is served.

A change of the catalog rebuilds only the parts of changed versions.
"""


def index(catalog: Catalog, version: str) -> Tagged:
    """Return the document of ``/openapi/v3``.

    The index has the relative URL of each document, with a hash that changes with the document.
    """
    return catalog.compute_once("discovery.v3", lambda now: _index(now, version))


def document(catalog: Catalog, path: str, version: str) -> Tagged | None:
    """Return a document as JSON, None if it does not exist.

    The ETag of the document is the quoted hash from the index. ``path`` is ``apis/<group>/<version>``, ``api/v1``, or a
    key of ``own_paths.pages``. ``version`` is the version of the server.
    """
    page = _pages(catalog, version).get(path)
    if page is None:
        return None
    return catalog.compute_once(f"discovery.v3/{path}", lambda _: Tagged(tuple(_json(page)), _tag(path, page)))


def protobuf(catalog: Catalog, path: str, version: str) -> Tagged | None:
    """Return a document as protobuf, with the ETag of its JSON; None if it does not exist."""
    page = _pages(catalog, version).get(path)
    if page is None:
        return None
    return catalog.compute_once(
        f"discovery.v3.proto/{path}", lambda _: Tagged(tuple(_protobuf(page)), _tag(path, page))
    )


def document_tag(catalog: Catalog, path: str, version: str) -> str | None:
    """Return the ETag of a document, without building the document.

    Return None if the document does not exist.
    """
    page = _pages(catalog, version).get(path)
    if page is None:
        return None
    return catalog.compute_once(f"discovery.v3.tag/{path}", lambda _: _tag(path, page))


def definitions(catalog: Catalog, path: str, version: str) -> dict[str, bytes]:
    """Return definition name → fingerprints of its versions, for the definitions in a document."""
    page = _pages(catalog, version).get(path)
    return published_parts(page.served) if page is not None else {}


def _pages(catalog: Catalog, version: str) -> Mapping[str, _Page]:
    return catalog.compute_once("discovery.v3.pages", lambda now: _make_pages(now, version))


def _make_pages(catalog: Catalog, version: str) -> Mapping[str, _Page]:
    about = (types.TITLE, version)
    found = {path: _Page((), (item,), about) for path, item in own_paths.pages(catalog).items()}
    for group, versions in published(catalog).items():
        for name, served in versions.items():
            own = own_paths.resources(catalog, group, name)
            path = f"apis/{group}/{name}" if group else f"api/{name}"
            found[path] = _Page(served, own, about if own else _CUSTOM)
    return dict(sorted(found.items()))


def _index(catalog: Catalog, version: str) -> Tagged:
    urls = {
        path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=" + _tag(path, page).strip('"')}
        for path, page in _pages(catalog, version).items()
    }
    body = orjson.dumps({"paths": urls})
    return Tagged((body,), etag((body,)))


def _tag(path: str, page: _Page) -> str:
    return etag((common(), path.encode(), *(text.encode() for text in page.about), *map(fingerprint, page.served)))


def _shared(page: _Page) -> list[tuple[str, ...]]:
    """Return the arguments of ``_types`` for the shared types that a document needs."""
    scale = any(endpoint.model is SCALE_MODEL for one in page.served for endpoint in one.version.endpoints.values())
    models = {model for item in page.own for one in item.operations for model in one.answers.values()}
    if any(one.version.model.typed and "watch" in one.version.published.verbs for one in page.served):
        models.add(types.WATCH_EVENT)
    every: list[tuple[str, ...]] = [(types.SCALE if scale else types.STATUS,)] if page.served else []
    named = model_names(one.version for one in page.served)
    models |= _own_within(named).union(*(_part(one.version).own for one in page.served))
    found = [*every, tuple(sorted(models))] if models else every
    return [*found, named] if named else found


@lru_cache(limits.DOCUMENTS_KEPT)
def _own_within(models: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the types of ``openapi_own.yaml`` to which models refer."""
    return frozenset(types.referred_to(model_schemas(models, v2=False)))


@lru_cache(limits.DOCUMENTS_KEPT)
def _types(key: tuple[str, ...]) -> Mapping[str, View]:
    if key in ((types.SCALE,), (types.STATUS,)):
        return types.shared_types(scale=key == (types.SCALE,))
    return model_schemas(key, v2=False) if key[0] in model_files() else types.own_types(key)


# --- JSON ---


def _json(page: _Page) -> list[bytes]:
    parts = [_part(one.version) for one in page.served]
    title, version = page.about
    head = orjson.dumps({"openapi": "3.0.0", "info": {"title": title, "version": version}})
    own = joined((item.path, PATHS.encoded(item)) for item in page.own)
    return [
        head[:-1] + b',"paths":{',
        *separated((own, *(part.paths for part in parts))),
        b'},"components":{"schemas":{',
        *separated((*(part.schemas for part in parts), *map(_encoded_types, _shared(page)))),
        b"}}}",
    ]


@lru_cache(limits.DOCUMENTS_KEPT)
def _encoded_types(key: tuple[str, ...]) -> bytes:
    return joined((name, orjson.dumps(schema)) for name, schema in _types(key).items())


def _part(served: ServedVersion) -> _Part:
    found = _PARTS.get(served)
    if found is None:
        every = kinds(served, v2=False)
        found = _PARTS[served] = _Part(
            joined((item.path, PATHS.encoded(item)) for item in path_items(served)),
            joined((name, encode_in_order(schema)) for name, schema in every.items()),
            types.referred_to(every) if served.model.typed else (),
        )
    return found


# --- protobuf ---


def _protobuf(page: _Page) -> list[bytes]:
    # In protobuf, the concatenation of serialized messages merges them, so each part can be serialized separately.
    own = {item.path: PATHS.item(item) for item in page.own}
    return [
        openapi_v3_proto.head(*page.about),
        *(_part_protobuf(one.version) for one in page.served),
        openapi_v3_proto.document(own, {}),
        *map(_protobuf_types, _shared(page)),
    ]


@lru_cache(limits.DOCUMENTS_KEPT)
def _protobuf_types(key: tuple[str, ...]) -> bytes:
    return openapi_v3_proto.document({}, _types(key))


def _part_protobuf(served: ServedVersion) -> bytes:
    part = _part(served)
    if part.protobuf is None:
        paths = {item.path: PATHS.item(item) for item in path_items(served)}
        part.protobuf = openapi_v3_proto.document(paths, kinds(served, v2=False))
    return part.protobuf
