"""Digests of the parts of OpenAPI documents (OAS-009).

From these digests, the server computes the ETag of a document before it creates the document.
"""

import hashlib
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import orjson

from apiext.catalog.served import ServedVersion
from apiext.discovery import types
from apiext.discovery.groups import Published
from apiext.go_types.sources import digest as builtin_digest

_FORMAT = "4"  # increment this when the server publishes the same definition in another form
_SCHEMAS: WeakKeyDictionary[ServedVersion, str] = WeakKeyDictionary()
"""Served version whose ``DefinitionState.content`` is unknown → digest of its names, schema and endpoints."""


def common() -> bytes:
    """Return bytes that change with ``_FORMAT`` and the data files of all documents."""
    return f"{_FORMAT}/{types.data().digest}".encode()


def fingerprint(one: Published) -> bytes:
    """Return bytes that change with the published parts of a version (OAS-009).

    The bytes do not change with a definition's status.
    """
    served = one.version
    verbs = ",".join(served.published.verbs)
    return f"{one.resource.definition.content or _content(one)}/{served.names.version}/{verbs};".encode()


def published_parts(served: Iterable[Published]) -> dict[str, bytes]:
    """Return name of the definition → fingerprints of its versions, concatenated.

    Ignore built-in resources.
    """
    found: dict[str, bytes] = {}
    for one in served:
        if not one.resource.builtin:
            name = str(one.resource.group_resource)
            found[name] = found.get(name, b"") + fingerprint(one)
    return found


def _content(one: Published) -> str:
    if one.resource.builtin:
        return f"{builtin_digest()}/{one.resource.group_resource}"
    served = one.version
    known = _SCHEMAS.get(served)
    if known is None:
        endpoints = [(name, one.verbs, one.model.kind) for name, one in served.endpoints.items()]
        names, published = served.names, served.published
        called = (names.group, names.resource, names.kind, names.list_kind, names.namespaced)
        parts = (called, published.preserve, endpoints, list(published.selectable), served.model.open_api)
        known = _SCHEMAS[served] = hashlib.blake2b(orjson.dumps(parts), digest_size=32).hexdigest()
    return known
