"""Documents computed from the catalog: discovery and OpenAPI, with ETags (DIS-101…108, OAS-001, OAS-002)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from apiext.catalog.served import Catalog
from apiext.discovery import aggregated, groups, openapi_v2, openapi_v3
from apiext.discovery.aggregated import Tagged
from apiext.documents.document import Document
from apiext.http import negotiation
from apiext.http.exchange import Exchange, Reply
from apiext.http.negotiation import JSON, YAML, Wanted
from apiext.http.responses import encoded, text

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_NAMES = (V2_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
_FOR_EVER = timedelta(days=365)
_AGGREGATED = ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")


# --- discovery ---


def discovery(exchange: Exchange, parts: Sequence[str], catalog: Catalog) -> Reply | None:
    """Answer ``/api``, ``/apis`` or a path below; None when nothing is there."""
    if len(parts) == 1:
        return _root(exchange, catalog, core=parts[0] == "api")
    document = _legacy(parts, catalog)
    return _negotiated(exchange, document) if document is not None else None


def _legacy(parts: Sequence[str], catalog: Catalog) -> Document | None:
    if parts[0] == "api":
        return groups.resource_list(catalog, groups.CORE, parts[1]) if len(parts) == 2 else None
    if len(parts) == 2:
        return groups.group(catalog, parts[1])
    return groups.resource_list(catalog, parts[1], parts[2]) if len(parts) == 3 else None


def _root(exchange: Exchange, catalog: Catalog, *, core: bool) -> Reply:
    """Answer ``/api`` or ``/apis``: aggregated for those who ask for that first (DIS-106)."""
    if wants_aggregated(exchange.accept):
        reply = _tagged(exchange, aggregated.document(catalog, core=core), aggregated.MEDIA_TYPE)
    else:
        address = exchange.headers.get("Host", "")
        reply = _negotiated(exchange, groups.core_versions(catalog, address) if core else groups.group_list(catalog))
    reply.headers.append(("Vary", "Accept"))
    return reply


def wants_aggregated(accept: str) -> bool:
    """Whether the best alternative that we have is aggregated discovery; unknown parameters do not matter."""
    for clause in negotiation.parse_accept(accept) if accept else ():
        asked = dict(clause.parameters)
        wanted = (asked.get("as"), asked.get("g"), asked.get("v"))
        if wanted == (None, None, None):
            if clause.matches(JSON) or clause.matches(YAML):
                return False
        elif wanted == _AGGREGATED and clause.matches(JSON):
            return True
    return False


def _negotiated(exchange: Exchange, document: Document) -> Reply:
    wanted: Wanted | None = negotiation.negotiate(exchange.accept, (JSON, YAML), transforms=False)
    if wanted is None:
        raise negotiation.not_acceptable(negotiation.ENCODINGS)
    agent = exchange.headers.get("User-Agent", "")
    pretty = wanted.pretty or negotiation.wants_pretty(exchange.query.get("pretty", ()), agent)
    return Reply(200, wanted.encoding, (encoded(document, wanted.encoding, pretty),), compressible=True)


def _tagged(exchange: Exchange, document: Tagged, content_type: str) -> Reply:
    """Return a document, or 304 when the client has it."""
    headers = [("ETag", document.etag)]
    given = exchange.headers.get("If-None-Match", "")
    if document.etag in {tag.strip().removeprefix("W/") for tag in given.split(",")}:
        return Reply(304, "", (), headers)
    return Reply(200, content_type, (document.body,), headers, compressible=True)


def paths(catalog: Catalog) -> list[str]:
    """Return the discovery paths that ``/`` lists."""
    found: list[str] = catalog.remember("http.paths", _paths)
    return found


def _paths(catalog: Catalog) -> list[str]:
    known = ["/api", "/apis", "/apis/"]
    for group, versions in groups.published(catalog).items():
        known += [f"/api/{version}" for version in versions] if not group else []
        known += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)] if group else []
    return known


# --- OpenAPI ---


def openapi(exchange: Exchange, parts: Sequence[str], catalog: Catalog, version: str) -> Reply | None:
    """Answer a path below ``/openapi``; None when nothing is there. ``version`` is the emulated Kubernetes version."""
    if list(parts) == ["v2"]:
        return _v2(exchange, catalog, version)
    return _v3(exchange, parts[1:], catalog) if parts and parts[0] == "v3" else None


def _v2(exchange: Exchange, catalog: Catalog, version: str) -> Reply:
    """Answer ``/openapi/v2``: JSON, or protobuf for kubectl; 406 for anything else (OAS-001)."""
    for clause in negotiation.parse_accept(exchange.accept or "*/*"):
        if clause.matches(JSON):
            reply = _tagged(exchange, openapi_v2.document(catalog, version), JSON)
        elif any(clause.matches(name) for name in _V2_NAMES):
            reply = _tagged(exchange, openapi_v2.protobuf(catalog, version), V2_PROTOBUF)
        else:
            continue
        reply.headers.append(("Vary", "Accept"))
        return reply
    return text(406, b"406 Not Acceptable\n")


def _v3(exchange: Exchange, rest: Sequence[str], catalog: Catalog) -> Reply | None:
    """Answer ``/openapi/v3`` and its documents; a wrong hash leads to the right one (OAS-002)."""
    if not rest:
        return _tagged(exchange, openapi_v3.index(catalog), JSON)
    path = "/".join(rest)
    document = openapi_v3.document(catalog, path)
    if document is None:
        return None
    given, current = exchange.value("hash"), document.etag.strip('"')
    if given and given != current:
        return Reply(301, "", (), [("Location", f"/openapi/v3/{path}?hash={current}")])
    reply = _tagged(exchange, document, JSON)
    reply.headers.append(("Vary", "Accept"))
    if given:
        until = format_datetime(datetime.now(UTC) + _FOR_EVER, usegmt=True)
        reply.headers += [("Cache-Control", "public, immutable"), ("Expires", until)]
    return reply
