"""Documents computed from the catalog: discovery and OpenAPI, with ETags (DIS-101…108, OAS-001, OAS-002)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from msgspec.structs import replace

from apiext.catalog.served import Catalog
from apiext.discovery import aggregated, groups, openapi_v2, openapi_v3
from apiext.discovery.protobuf import encode as encode_protobuf
from apiext.discovery.tagged import Tagged
from apiext.documents.document import Document
from apiext.http import limits, negotiation, responses
from apiext.http.builder import Builder
from apiext.http.conditional import Conditional
from apiext.http.exchange import Exchange, Reply
from apiext.http.negotiation import ENCODINGS, JSON, PROTOBUF, YAML, Wanted
from apiext.http.regenerations import Regenerations
from apiext.telemetry import Gone, Telemetry

_AGGREGATED = ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")
_FORMS: Mapping[str, Sequence[tuple[str, str]]] = {  # as asked for → Content-Type, the first one for wildcards
    version: (
        (JSON, JSON),
        (f"application/com.github.proto-openapi.spec.{version}@v1.0+protobuf", answered),
        (answered, answered),
    )
    for version, answered in (("v2", openapi_v2.PROTOBUF), ("v3", openapi_v3.PROTOBUF))
}


class Publisher:
    """Answers requests for discovery and OpenAPI; ``version`` is the Kubernetes version that is emulated."""

    def __init__(self, version: str, telemetry: Telemetry) -> None:
        self.version = version
        self._regenerations = Regenerations(telemetry)
        self.builder = Builder()
        self._conditional = Conditional()

    def forget(self, gone: Gone) -> Iterator[None]:
        """Forget when documents of groups that are gone were made; yields now and then."""
        for known in (self._conditional, self._regenerations):
            known.forget(lambda name: gone(_group_of(name), ""))
            yield

    # --- discovery ---

    async def discovery(self, exchange: Exchange, parts: Sequence[str], catalog: Catalog) -> Reply | None:
        """Answer ``/api``, ``/apis`` or a path below; None when nothing is there."""
        await self.builder.get(catalog, "http.groups", groups.published)
        if len(parts) > 1:
            return await self._legacy(exchange, parts, catalog)
        encoding = wants_aggregated(exchange.accept)
        if encoding and exchange.path != "/apis/":  # upstream: with the slash it is another handler's
            reply: Reply | None = await self._aggregated(exchange, parts[0], catalog, encoding)
        elif parts[0] == "api":
            reply = _core_versions(exchange, catalog)
        else:
            reply = await self._legacy(exchange, parts, catalog)
        assert reply is not None, "both roots are always there"
        reply.headers.append(("Vary", "Accept"))
        return reply

    async def _aggregated(self, exchange: Exchange, root: str, catalog: Catalog, encoding: str) -> Reply:
        """Answer ``/api`` or ``/apis`` for those who take everything at once (DIS-106)."""
        document = await self.builder.get(
            catalog,
            f"http.aggregated {root} {encoding}",
            lambda now: aggregated.document(now, core=root == "api", encoding=encoding),
            large=encoding == YAML,
        )
        reply = self._conditional.unchanged(exchange, root, document.etag)
        if reply is None:
            reply = await self._whole(exchange, root, catalog, document, aggregated.content_type(encoding))
        reply.headers.append(("Cache-Control", "public"))
        return reply

    async def _legacy(self, exchange: Exchange, parts: Sequence[str], catalog: Catalog) -> Reply | None:
        """Answer with one of the old documents, which is encoded once for all who want it alike."""
        make = _legacy(parts, catalog)
        if make is None:
            return None
        wanted = _wanted(exchange)
        body = await self.builder.get(
            catalog,
            f"http.legacy {'/'.join(parts)} {wanted.encoding} {wanted.pretty}",
            lambda now: _encoded(make(now), wanted),
            large=wanted.encoding == YAML,
        )
        return Reply(200, wanted.encoding, (body,), compressible=True, shared=True)

    # --- OpenAPI ---

    async def openapi(self, exchange: Exchange, parts: Sequence[str], catalog: Catalog) -> Reply | None:
        """Answer a path below ``/openapi``; None when nothing is there."""
        version, path = (parts[0], "/".join(parts[1:])) if parts else ("", "")
        if version == "v3":
            index = await self.builder.get(catalog, "http.v3", lambda now: openapi_v3.index(now, self.version))
            if path:
                return await self._v3(exchange, path, catalog)
            return self._conditional.unchanged(exchange, "openapi/v3", index.etag) or await self._whole(
                exchange, "openapi/v3", catalog, index, JSON
            )
        return await self._v2(exchange, catalog) if version == "v2" and not path else None

    async def _v2(self, exchange: Exchange, catalog: Catalog) -> Reply:
        """Answer ``/openapi/v2``: JSON, or protobuf for kubectl; 406 for anything else (OAS-001)."""
        form = _form(exchange.accept, _FORMS["v2"])
        varies = [("Vary", "Accept-Encoding"), ("Vary", "Accept")]  # upstream: its compressor says so of any answer
        if not form:
            return Reply(406, "", (), varies)
        tag = await self.builder.get(catalog, "http.v2", lambda now: openapi_v2.tag(now, self.version))
        reply = self._conditional.unchanged(exchange, "openapi/v2", tag)
        if reply is not None:
            reply.headers += varies
        else:
            make = openapi_v2.document if form == JSON else openapi_v2.protobuf
            document = await self.builder.get(
                catalog, f"http.v2 {form}", lambda now: make(now, self.version), large=True
            )
            made_of = await self.builder.get(catalog, "http.v2 definitions", openapi_v2.definitions)
            self._regenerations.v2(tag, lambda: made_of)
            reply = await self._whole(exchange, "openapi/v2", catalog, document, form)
            reply.headers.append(varies[1])
        return reply

    async def _v3(self, exchange: Exchange, path: str, catalog: Catalog) -> Reply | None:
        """Answer a document of OpenAPI v3; a wrong hash leads to the right one (OAS-002)."""
        tag = openapi_v3.document_tag(catalog, path, self.version)
        if tag is None:
            return None
        form = _form(exchange.accept, _FORMS["v3"])
        if not form:
            return Reply(406, "", (), [("Vary", "Accept")])
        given, current = exchange.value("hash"), tag.strip('"')
        if given and given != current:
            return Reply(301, "", (), [("Location", f"/openapi/v3/{path}?hash={current}"), ("Vary", "Accept")])
        reply = self._conditional.unchanged(exchange, f"openapi/v3/{path}", tag)
        if reply is None:
            make = openapi_v3.document if form == JSON else openapi_v3.protobuf
            document = await self.builder.get(
                catalog, f"http.v3 {form} {path}", lambda now: make(now, path, self.version), slow=True
            )
            assert document is not None, "a document that has a tag"
            self._regenerations.v3(path, tag, lambda: openapi_v3.definitions(catalog, path, self.version))
            reply = await self._whole(exchange, f"openapi/v3/{path}", catalog, document, form)
        reply.headers.append(("Vary", "Accept"))
        if given:
            until = format_datetime(in_a_year(datetime.now(UTC)), usegmt=True)
            reply.headers += [("Cache-Control", "public, immutable"), ("Expires", until)]
        return reply

    async def _whole(
        self, exchange: Exchange, name: str, catalog: Catalog, document: Tagged, content_type: str
    ) -> Reply:
        """Return a document; a large one is compressed once for all who take gzip."""
        reply = Reply(200, content_type, document.parts, self._conditional.headers(name, document.etag), shared=True)
        if reply.size > limits.GZIP_FROM:
            reply.headers.append(("Vary", "Accept-Encoding"))
            if responses.accepts_gzip(exchange.headers.get("Accept-Encoding", "")):
                key = f"http.gzip {name} {content_type}"
                reply.parts = await self.builder.get(
                    catalog, key, lambda _: responses.gzip(document.parts), slow=True, large=name == "openapi/v2"
                )
                reply.headers.append(("Content-Encoding", "gzip"))
        return reply


def in_a_year(moment: datetime) -> datetime:
    """Return the same date of the next year; the first of March for a leap day, as Go's AddDate does."""
    try:
        return moment.replace(year=moment.year + 1)
    except ValueError:
        return moment.replace(year=moment.year + 1, month=3, day=1)


def _group_of(name: str) -> str:
    """Return the group in the name of a document of one version, nothing for other documents."""
    return name.rpartition("apis/")[2].partition("/")[0] if "apis/" in name else ""


# --- the old discovery documents ---


def _legacy(parts: Sequence[str], catalog: Catalog) -> Callable[[Catalog], Any] | None:
    """Return what makes the document of a path; None when nothing is there, so that only what is is remembered."""
    if list(parts) == ["apis"]:
        return groups.group_list
    group, rest = (groups.CORE, parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    versions = groups.published(catalog).get(group)
    if versions is None or (group == groups.CORE) is not (parts[0] == "api"):
        return None
    if not rest:
        return lambda now: groups.group(now, group)
    if len(rest) > 1 or rest[0] not in versions:
        return None
    return lambda now: groups.resource_list(now, group, rest[0])


def is_there(parts: Sequence[str], catalog: Catalog) -> bool:
    """Whether there is a discovery document at a path."""
    return len(parts) == 1 or _legacy(parts, catalog) is not None


def _core_versions(exchange: Exchange, catalog: Catalog) -> Reply:
    wanted = _wanted(exchange)
    host = exchange.headers.get("Host", "")
    if not responses.is_host(host):
        return responses.bad_host()
    body = _encoded(groups.core_versions(catalog, host), wanted)
    return Reply(200, wanted.encoding, (body,), shared=True)


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


# --- negotiation ---


def wants_aggregated(accept: str) -> str:
    """Return the encoding of aggregated discovery when a client takes that, else nothing.

    As upstream, its place among the alternatives does not matter, nor do unknown parameters.
    """
    for clause in negotiation.parse_accept(accept) if accept else ():
        asked = dict(clause.parameters)
        if (asked.get("as"), asked.get("g"), asked.get("v")) == _AGGREGATED:
            for encoding in ENCODINGS:
                if clause.matches(encoding):
                    return encoding
    return ""


def _form(accept: str, forms: Sequence[tuple[str, str]]) -> str:
    """Return the Content-Type for the best alternative that there is, nothing when there is none."""
    for clause in negotiation.parse_accept(accept or "*/*"):
        for asked, answered in forms:
            if clause.matches(asked):
                return answered
    return ""


def _wanted(exchange: Exchange) -> Wanted:
    """Return how a client wants a document that is no OpenAPI; 406 when it takes nothing that we have."""
    wanted = negotiation.negotiate(exchange.accept, ENCODINGS, transforms=False)
    if wanted is None:
        raise negotiation.not_acceptable(ENCODINGS)
    agent = exchange.headers.get("User-Agent", "")
    pretty = wanted.pretty or negotiation.wants_pretty(exchange.query.get("pretty", ()), agent)
    return replace(wanted, pretty=pretty)


def _encoded(document: Document, wanted: Wanted) -> bytes:
    if wanted.encoding == PROTOBUF:
        return encode_protobuf(document)
    return responses.encoded(document, wanted.encoding, wanted.pretty)
