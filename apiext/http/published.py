"""Documents computed from the catalog: discovery and OpenAPI, cached, with ETags.

See DIS-101…108, OAS-001, OAS-002.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import format_datetime, formatdate, parsedate_to_datetime
from importlib import import_module
from typing import Any, TypeVar

from msgspec.structs import replace

from apiext.catalog.served import Catalog
from apiext.discovery import aggregated, groups
from apiext.discovery.protobuf import encode as encode_protobuf
from apiext.discovery.tagged import Tagged
from apiext.documents.document import Document
from apiext.http import limits, negotiation, responses
from apiext.http.exchange import Exchange, Reply
from apiext.http.negotiation import ENCODINGS, JSON, PROTOBUF, YAML, Wanted
from apiext.telemetry import Family, IsDeleted, Telemetry

T = TypeVar("T")


class Builder:
    """Computes documents of a catalog, slow ones in threads, and caches them with the catalog.

    One thread computes large documents. Another thread computes the other slow documents, so that they do not wait for
    large documents.
    """

    def __init__(self) -> None:
        self._pools: dict[bool, ThreadPoolExecutor] = {}
        self._pending: dict[tuple[int, str], asyncio.Future[Any]] = {}

    async def get(
        self, catalog: Catalog, key: str, make: Callable[[Catalog], T], *, slow: bool = False, large: bool = False
    ) -> T:
        """Return the result of ``make(catalog)``, cached under ``key``.

        Raise the errors of ``make``. ``slow`` is true if the call takes long even for a few definitions. ``large`` is
        true if the call takes long, and the document is about all definitions.
        """
        known: T | None = catalog.cached(key)
        if known is not None:
            return known
        if len(catalog.resources) <= limits.BUILD_INLINE and not (slow or large):
            made: T = catalog.compute_once(key, make)
            return made
        name = (catalog.number, key)
        pending = self._pending.get(name)
        if pending is None:
            pending = asyncio.get_running_loop().run_in_executor(self._pool(large), catalog.compute_once, key, make)
            self._pending[name] = pending
            pending.add_done_callback(lambda done: self._done(name, done))
        built: T = await asyncio.shield(pending)  # a cancelled request must not cancel the work for further requests
        return built

    def _pool(self, large: bool) -> ThreadPoolExecutor:
        if large not in self._pools:
            self._pools[large] = ThreadPoolExecutor(1, "large documents" if large else "documents")
        return self._pools[large]

    def _done(self, name: tuple[int, str], done: asyncio.Future[Any]) -> None:
        self._pending.pop(name, None)
        if not done.cancelled():
            done.exception()  # marks the exception as retrieved, since all waiting requests may be cancelled

    def close(self) -> None:
        """Stop the threads, and cancel waiting work."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


NEVER = -1.0
"""Seconds since the epoch that stand for a missing or malformed date."""


class Conditional:
    """ETag and Last-Modified of each document, and the 304 for a client that has the document.

    See RFC 9110, 13.1.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        # document → (ETag, Unix time of the last change in seconds, this time as an HTTP date)
        self._changes: dict[str, tuple[str, int, str]] = {}

    def unchanged(self, exchange: Exchange, name: str, tag: str) -> Reply | None:
        """Return a 304 if the client already has the document, else None.

        If-None-Match decides, or without it If-Modified-Since.
        """
        given = exchange.headers.get("If-None-Match", "")
        if given:
            tags = {each.strip().removeprefix("W/") for each in given.split(",")}
            known = tag in tags or "*" in tags
        else:
            known = self._changed(name, tag)[1] <= _seconds(exchange.headers.get("If-Modified-Since", ""))
        return Reply(304, "", (), self.headers(name, tag)) if known else None

    def headers(self, name: str, tag: str) -> list[tuple[str, str]]:
        """Return ETag and Last-Modified of a document."""
        return [("ETag", tag), ("Last-Modified", self._changed(name, tag)[2])]

    def drop_deleted(self, is_deleted: Callable[[str], bool]) -> None:
        """Drop documents for whose name ``is_deleted`` is true."""
        for name in [name for name in self._changes if is_deleted(name)]:
            del self._changes[name]

    def _changed(self, name: str, tag: str) -> tuple[str, int, str]:
        """Return the entry of a document in _changes.

        A changed document gets a later second than the cached entry.
        """
        known = self._changes.get(name)
        if known is None or known[0] != tag:
            if len(self._changes) >= limits.PUBLISHED_PATHS:
                self._changes.clear()
            second = max(int(self._now()), known[1] + 1 if known else 0)
            known = self._changes[name] = (tag, second, formatdate(second, usegmt=True))
        return known


def _seconds(date: str) -> float:
    """Return an HTTP date in seconds since the epoch, NEVER for a malformed date."""
    try:
        return parsedate_to_datetime(date).timestamp() if date else NEVER
    except (ValueError, OverflowError, OSError):
        return NEVER


class Regenerations:
    """Counts changes of OpenAPI documents by definition and reason (OAS-009).

    The metrics have upstream's names.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        # document → (ETag, definition → its part of the document)
        self._made: dict[str, tuple[str, Mapping[str, bytes]]] = {}
        self._v2 = Family(
            "apiextensions_openapi_v2_regeneration_count",
            "counter",
            "Counter of OpenAPI v2 spec regeneration count broken down by causing CRD name and reason.",
            ("crd", "reason"),
        )
        self._v3 = Family(
            "apiextensions_openapi_v3_regeneration_count",
            "counter",
            "Counter of OpenAPI v3 spec regeneration count broken down by group, version, causing CRD and reason.",
            ("group", "version", "crd", "reason"),
        )
        telemetry.add(self._v2)
        telemetry.add(self._v3)

    def v2(self, tag: str, made_of: Callable[[], Mapping[str, bytes]]) -> None:
        """Count the changes of OpenAPI v2.

        ``made_of()`` returns definition → its part of the document.
        """
        for definition, reason in self._differences("v2", tag, made_of):
            self._v2.slot(definition, reason).value += 1

    def v3(self, path: str, tag: str, made_of: Callable[[], Mapping[str, bytes]]) -> None:
        """Count the changes of a document of OpenAPI v3; ``path`` is its name in the index."""
        _, _, group_version = path.partition("/")
        group, _, version = group_version.rpartition("/")
        for definition, reason in self._differences(path, tag, made_of):
            self._v3.slot(group, version, definition, reason).value += 1

    def drop_deleted(self, is_deleted: Callable[[str], bool]) -> None:
        """Drop documents for whose name ``is_deleted`` is true."""
        for name in [name for name in self._made if is_deleted(name)]:
            del self._made[name]

    def _differences(self, name: str, tag: str, made_of: Callable[[], Mapping[str, bytes]]) -> list[tuple[str, str]]:
        before_tag, before = self._made.get(name, ("", {}))
        if before_tag == tag:
            return []
        if len(self._made) >= limits.PUBLISHED_PATHS:
            for cleared in (self._made, self._v2, self._v3):
                cleared.clear()
        after = made_of()
        self._made[name] = (tag, after)
        changed = [(one, "update" if one in before else "add") for one in after if before.get(one) != after[one]]
        return changed + [(one, "remove") for one in before if one not in after]


_AGGREGATED = ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")
_OPENAPI = ("apiext.discovery.openapi_v2", "apiext.discovery.openapi_v3")
"""Modules that the first request for OpenAPI imports, in a thread (decision 36)."""
_OPENAPI_PROTOBUF = {
    "v2": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "v3": "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
}
# version → (requested media type, Content-Type) of each form; a wildcard selects the first form
_FORMS: Mapping[str, Sequence[tuple[str, str]]] = {
    version: (
        (JSON, JSON),
        (f"application/com.github.proto-openapi.spec.{version}@v1.0+protobuf", content_type),
        (content_type, content_type),
    )
    for version, content_type in _OPENAPI_PROTOBUF.items()
}


class Publisher:
    """Handles requests for discovery and OpenAPI.

    ``version`` is the emulated version of Kubernetes.
    """

    def __init__(self, version: str, telemetry: Telemetry) -> None:
        self.version = version
        self._regenerations = Regenerations(telemetry)
        self.builder = Builder()
        self._conditional = Conditional()

    def drop_deleted(self, is_deleted: IsDeleted) -> Iterator[None]:
        """Drop the state of documents of deleted groups.

        The caller can yield to the event loop between two steps.
        """
        for part in (self._conditional, self._regenerations):
            part.drop_deleted(lambda name: is_deleted(_group_of(name), ""))
            yield

    # --- discovery ---

    async def discovery(self, exchange: Exchange, parts: Sequence[str], catalog: Catalog) -> Reply | None:
        """Handle ``/api``, ``/apis`` or a path below; return None for a path without a document."""
        await self.builder.get(catalog, "http.groups", groups.published)
        if len(parts) > 1:
            return await self._legacy(exchange, parts, catalog)
        encoding = wants_aggregated(exchange.accept)
        # The handler of /apis/ does not serve aggregated discovery.
        if encoding and exchange.path != "/apis/":  # upstream: /apis/ has another handler than /apis
            reply: Reply | None = await self._aggregated(exchange, parts[0], catalog, encoding)
        elif parts[0] == "api":
            reply = _core_versions(exchange, catalog)
        else:
            reply = await self._legacy(exchange, parts, catalog)
        assert reply is not None, "both roots always exist"
        reply.headers.append(("Vary", "Accept"))
        return reply

    async def _aggregated(self, exchange: Exchange, root: str, catalog: Catalog, encoding: str) -> Reply:
        """Handle ``/api`` or ``/apis`` with aggregated discovery (DIS-106)."""
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
        """Return a document of legacy discovery, or None for a path without a document.

        Each form of a document is encoded once.
        """
        make = _legacy_document(parts, catalog)
        if make is None:
            return None
        wanted = _requested_form(exchange)
        body = await self.builder.get(
            catalog,
            f"http.legacy {'/'.join(parts)} {wanted.encoding} {wanted.pretty}",
            lambda now: _encoded(make(now), wanted),
            large=wanted.encoding == YAML,
        )
        return Reply(200, wanted.encoding, (body,), compressible=True, shared=True)

    # --- OpenAPI ---

    async def openapi(self, exchange: Exchange, parts: Sequence[str], catalog: Catalog) -> Reply | None:
        """Handle a path below ``/openapi``; return None for a path without a document."""
        version, path = (parts[0], "/".join(parts[1:])) if parts else ("", "")
        for module in _OPENAPI:
            if module not in sys.modules:
                await asyncio.to_thread(import_module, module)
        if version == "v3":
            from apiext.discovery import openapi_v3

            index = await self.builder.get(catalog, "http.v3", lambda now: openapi_v3.index(now, self.version))
            if path:
                return await self._v3(exchange, path, catalog)
            return self._conditional.unchanged(exchange, "openapi/v3", index.etag) or await self._whole(
                exchange, "openapi/v3", catalog, index, JSON
            )
        return await self._v2(exchange, catalog) if version == "v2" and not path else None

    async def _v2(self, exchange: Exchange, catalog: Catalog) -> Reply:
        """Handle ``/openapi/v2`` in JSON or protobuf; return a 406 for other media types (OAS-001)."""
        form = _form(exchange.accept, _FORMS["v2"])
        varies = [
            ("Vary", "Accept-Encoding"),
            ("Vary", "Accept"),
        ]  # upstream: OpenAPI v2 is compressed; its compressor adds the header Vary to any answer
        if not form:
            return Reply(406, "", (), varies)
        from apiext.discovery import openapi_v2

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
        """Return a document of OpenAPI v3, or for a wrong hash a redirect to the current hash.

        See OAS-002. Return None for a path without a document, and a 406 if the client accepts no form.
        """
        from apiext.discovery import openapi_v3

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
            assert document is not None, "a document with a tag exists"
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
        """Return the complete document.

        A large document is compressed once for all clients that accept gzip.
        """
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
    """Return the same date of the next year.

    For a leap day, return the first of March, as Go's AddDate does.
    """
    try:
        return moment.replace(year=moment.year + 1)
    except ValueError:
        return moment.replace(year=moment.year + 1, month=3, day=1)


def _group_of(name: str) -> str:
    """Return the group in the name of a document, an empty string if the name has none."""
    return name.rpartition("apis/")[2].partition("/")[0] if "apis/" in name else ""


# --- legacy discovery ---


def _legacy_document(parts: Sequence[str], catalog: Catalog) -> Callable[[Catalog], Any] | None:
    """Return the function that creates the document of a path.

    Return None for a path without a document.
    """
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


def has_document(parts: Sequence[str], catalog: Catalog) -> bool:
    """Report whether a path has a discovery document."""
    return len(parts) == 1 or _legacy_document(parts, catalog) is not None


def _core_versions(exchange: Exchange, catalog: Catalog) -> Reply:
    wanted = _requested_form(exchange)
    host = exchange.headers.get("Host", "")
    if not responses.is_host(host):
        return responses.bad_host()
    body = _encoded(groups.core_versions(catalog, host), wanted)
    return Reply(200, wanted.encoding, (body,), shared=True)


def paths(catalog: Catalog) -> list[str]:
    """Return the discovery paths that ``/`` lists."""
    found: list[str] = catalog.compute_once("http.paths", _paths)
    return found


def _paths(catalog: Catalog) -> list[str]:
    known = ["/api", "/apis", "/apis/"]
    for group, versions in groups.published(catalog).items():
        known += [f"/api/{version}" for version in versions] if not group else []
        known += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)] if group else []
    return known


# --- negotiation ---


def wants_aggregated(accept: str) -> str:
    """Return the encoding if a client accepts aggregated discovery, else an empty string.

    As upstream, the position of the alternative in the Accept header does not matter, nor do unknown parameters.
    """
    for clause in negotiation.parse_accept(accept) if accept else ():
        parameters = dict(clause.parameters)
        if (parameters.get("as"), parameters.get("g"), parameters.get("v")) == _AGGREGATED:
            for encoding in ENCODINGS:
                if clause.matches(encoding):
                    return encoding
    return ""


def _form(accept: str, forms: Sequence[tuple[str, str]]) -> str:
    """Return the Content-Type of the first acceptable form, or an empty string."""
    for clause in negotiation.parse_accept(accept or "*/*"):
        for parameters, content_type in forms:
            if clause.matches(parameters):
                return content_type
    return ""


def _requested_form(exchange: Exchange) -> Wanted:
    """Return the requested form of a discovery document; raise a 406 if no form is acceptable."""
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
