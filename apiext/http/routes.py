"""Routes from paths to handlers: resources, discovery, OpenAPI, health, version, metrics.

The resources are those of the catalog.
"""

from collections.abc import Awaitable, Callable, Mapping

import orjson

from apiext.auth.authorization import is_public
from apiext.catalog.served import Catalog, ServedResource, ServedVersion
from apiext.http import eventstream, front_page, health, negotiation, published, responses
from apiext.http.exchange import Answer, Exchange, Labels, Reply
from apiext.http.health import Health
from apiext.http.negotiation import JSON
from apiext.http.openid import CONFIGURATION, KEYS, Issuer
from apiext.http.published import Publisher
from apiext.http.resources import Resources, Target
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.requestinfo import RequestInfo
from apiext.scheduling.loop_budget import LoopBudget
from apiext.telemetry import Telemetry

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ACROSS_NAMESPACES = frozenset(("list", "watch"))
NOT_ALLOWED = "the server does not allow this method on the requested resource"
NOT_YET = (
    "the request has been made before all known HTTP paths have been installed, please try again"  # upstream's text
)
# upstream routes update and patch only with a name, and create only without a name
_BY_NAME = frozenset(("create", "update", "patch"))
_READS = frozenset(("GET", "HEAD"))
# methods that upstream's proxy subresource forwards, besides those of the verbs
_OF_PROXIES = frozenset(("HEAD", "OPTIONS"))
# first parts of paths whose documents list the served resources
_COMPUTED = frozenset(("", "index.html", "api", "apis", "openapi"))
_DOTS = frozenset((".", ".."))  # namespaces that are a 404 here, and in upstream a 500: keys of etcd cannot have them
_METRIC_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",  # upstream: the label of a deletecollection is its HTTP method
}


class Routes:
    """The handlers of all paths, and the function that finds the handler of a request."""

    def __init__(
        self,
        resources: Resources,
        health: Health,
        telemetry: Telemetry,
        version: Mapping[str, str],
        issuer: Issuer | None = None,
    ) -> None:
        self.resources = resources
        self.health = health
        self.telemetry = telemetry
        self.version = version
        self.issuer = issuer
        self.publisher = Publisher(f"{version['major']}.{version['minor']}", telemetry)

    # This is not a coroutine, since one more coroutine for each request costs time.
    def answer(self, exchange: Exchange) -> Awaitable[Answer]:
        """Handle a request after the filters."""
        info = exchange.info
        catalog = self.resources.operations.catalog.current  # read once, so that the steps below use the same catalog
        if not info.is_resource or exchange.path.startswith("//"):
            return self._document(exchange, catalog)
        try:
            found = find(catalog, info, exchange.warnings)
        except status.StatusError:
            if _is_own(catalog, info):
                raise
            return self._settled(exchange, info)
        if isinstance(found, Reply):
            return self._settled(exchange, info)
        return self._resource(exchange, info, found)

    async def _document(self, exchange: Exchange, catalog: Catalog) -> Answer:
        """Handle a request for a path that is not a resource."""
        exchange.labels = _document_labels(exchange)
        if not exchange.path:
            return responses.text(400, b"400 Bad Request")
        if exchange.path.startswith("//"):
            return self._unknown_path(catalog)
        parts = exchange.path.strip("/").split("/")
        operations = self.resources.operations
        if operations.has_peers and parts[0] in _COMPUTED:
            await operations.catch_up()
            catalog = operations.catalog.current
        fixed, built = FIXED.get(parts[0]), BUILT.get(parts[0])
        reply = fixed(self, exchange, parts, catalog) if fixed is not None else None
        if built is not None:
            reply = await built(self, exchange, parts, catalog)
        if reply is None and exchange.user.is_anonymous and is_public(exchange.path):
            return responses.page_not_found()  # a client without credentials gets no list of the served groups
        return reply if reply is not None else self._unknown_path(catalog)

    # --- resources ---

    async def _settled(self, exchange: Exchange, info: RequestInfo) -> Answer:
        """Handle a request for an unknown resource again once the catalog is complete.

        The catalog is complete when it has all stored definitions.
        """
        await self.resources.operations.settle()
        target = find(self.resources.operations.catalog.current, info, exchange.warnings)
        if isinstance(target, Reply):
            return self._missing(target)
        return await self._resource(exchange, info, target)

    def _resource(self, exchange: Exchange, info: RequestInfo, target: Target) -> Awaitable[Answer]:
        served = target.served
        if served.model.typed:
            _check_route(exchange, info, target)
        elif info.verb not in target.endpoint.verbs:
            raise status.method_not_supported(served.names.group_resource, info.verb)
        exchange.labels = labels(info, served, _verb_label(exchange, info, served))
        if served.published.deprecation_warning:
            self.telemetry.deprecated.slot(
                served.names.group, served.names.version, served.names.resource, info.subresource, ""
            ).value = 1
            if exchange.trail is not None:
                exchange.trail.deprecated = True
        return self.resources.answer(exchange, target)

    def _missing(self, page: Reply) -> Reply:
        if self.health.starting():
            raise status.StatusError(503, "ServiceUnavailable", NOT_YET, {"retryAfterSeconds": 5})
        return page

    # --- other paths ---

    def _unknown_path(self, catalog: Catalog) -> Reply:
        """Return the 404 of an unknown path outside the API, with the list of all paths."""
        reply = self.root_document(catalog)
        reply.code = 404
        return reply

    def root_document(self, catalog: Catalog) -> Reply:
        """Return the list of all paths, indented as upstream prints it."""
        return Reply(200, JSON, (catalog.compute_once("http.root", self._paths),), compressible=True)

    def _paths(self, catalog: Catalog) -> bytes:
        fixed = {"/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"}
        openid = {CONFIGURATION, KEYS} if self.issuer is not None and self.issuer.is_published else set()
        paths = sorted(fixed | openid | set(self.health.paths()) | set(published.paths(catalog)))
        return orjson.dumps({"paths": paths}, option=orjson.OPT_INDENT_2)

    def root(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle ``/`` and ``/index.html``: the front page, or the list of all paths.

        Only browsers get the front page, and only for ``/``.
        """
        if front_page.is_wanted(exchange):
            return front_page.answer(self.version["gitVersion"])
        return self.root_document(catalog) if exchange.path in {"/", "/index.html"} else None

    def probe(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle a health endpoint (HLT-001)."""
        if exchange.path.endswith("/"):
            return None
        return self.health.answer(parts[0], "/".join(parts[1:]), exchange.query)

    def show_version(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle ``/version`` (DIS-109)."""
        if len(parts) > 1:
            raise status.resource_not_found()
        if exchange.method != "GET":
            raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
        negotiation.check_consumed(exchange.headers.get("Content-Type", ""), (JSON,))
        negotiation.check_route(exchange.accept, (JSON,))
        return Reply(200, JSON, (orjson.dumps(self.version, option=orjson.OPT_INDENT_2),))

    def openid(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle the OpenID paths, with which other servers verify tokens of service accounts.

        See AUT-001.
        """
        path = f"/{'/'.join(parts)}"
        shown = self.issuer.shown(path, exchange.headers.get("Host", "")) if self.issuer is not None else None
        if shown is None:
            return None
        if exchange.method != "GET":
            raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
        negotiation.check_route(exchange.accept, (shown.content_type,))
        return shown

    async def metrics(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle ``/metrics`` and ``/metrics/slis`` (MTR-001).

        Yield to the event loop between lines.
        """
        if parts[1:] == ["slis"]:
            return Reply(200, METRICS_TYPE, (self._slis().encode(),))
        if exchange.path != "/metrics":
            return None
        found: list[str] = []
        loop_budget = LoopBudget()
        for line in self.telemetry.lines():
            found.append(line)
            await loop_budget.pause()
        return Reply(200, METRICS_TYPE, ("\n".join((*found, "")).encode(),), compressible=True)

    def _slis(self) -> str:
        lines = [
            "# HELP kubernetes_healthcheck This metric records the result of a single healthcheck.",
            "# TYPE kubernetes_healthcheck gauge",
        ]
        for endpoint in health.ENDPOINTS:
            for check in self.health.of(endpoint):
                value = 0 if check.probe() else 1
                lines.append(f'kubernetes_healthcheck{{name="{check.name}",type="{endpoint}"}} {value}')
        return "\n".join(lines) + "\n"

    async def discover(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle ``/api``, ``/apis`` and paths below (DIS-101…108)."""
        if exchange.path.startswith("/apis//"):
            return self._missing(responses.page_not_found())
        builtin = len(parts) < 2 or parts[0] == "api" or is_builtin(catalog, parts[1])
        routed = builtin and parts != ["apis"]
        if routed and not published.has_document(parts, catalog):
            if parts[0] == "api":
                return None
            raise status.resource_not_found()
        if builtin and exchange.method not in ({"GET"} if routed else _READS):
            raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
        if routed:
            negotiation.check_consumed(exchange.headers.get("Content-Type", ""), negotiation.ENCODINGS)
            negotiation.check_route(exchange.accept, negotiation.ENCODINGS)
        reply = await self.publisher.discovery(exchange, parts, catalog)
        return reply if reply is not None else self._missing(responses.page_not_found())

    async def openapi(self, exchange: Exchange, parts: list[str], catalog: Catalog) -> Reply | None:
        """Handle ``/openapi/v2`` and ``/openapi/v3`` (OAS-001, OAS-002)."""
        if exchange.method not in _READS:
            raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
        path, reply = exchange.path, None
        if not path.endswith("/"):
            reply = await self.publisher.openapi(exchange, parts[1:], catalog)
        if reply is None and path.startswith("/openapi/v3/"):
            return Reply(404, "")  # upstream: the 404 of a missing document has no body
        return reply


Fixed = Callable[[Routes, Exchange, list[str], Catalog], Reply | None]
Built = Callable[[Routes, Exchange, list[str], Catalog], Awaitable[Reply | None]]

FIXED: Mapping[str, Fixed] = {
    "": Routes.root,
    "index.html": Routes.root,
    "healthz": Routes.probe,
    "livez": Routes.probe,
    "readyz": Routes.probe,
    "version": Routes.show_version,
    ".well-known": Routes.openid,
    "openid": Routes.openid,
}
"""First part of a path that is not a resource → its handler; a handler returns None for an unknown path."""

BUILT: Mapping[str, Built] = {
    "api": Routes.discover,
    "apis": Routes.discover,
    "openapi": Routes.openapi,
    "metrics": Routes.metrics,
}
"""First part of a path → its handler, for handlers that may wait."""


def is_builtin(catalog: Catalog, group: str) -> bool:
    """Report whether a group is built in.

    As in kube-apiserver, unknown paths of a built-in group get a Status, those of other groups plain text.
    """
    return group in catalog.builtin_groups


def _check_route(exchange: Exchange, info: RequestInfo, target: Target) -> None:
    """Raise the 405, 415 or 406 of upstream's router for built-in resources (ERR-14).

    This happens before the handler runs.
    """
    method = "GET" if info.verb == "watch" else exchange.method
    forwarded = target.endpoint.name == "proxy" and exchange.method in _OF_PROXIES
    if not forwarded and (info.verb not in target.endpoint.verbs or exchange.method != method or method == "HEAD"):
        raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
    if target.endpoint.connects:
        return
    if info.verb == "patch":
        negotiation.check_patched(exchange.headers.get("Content-Type", ""))
    if info.verb == "watch" and eventstream.is_wanted(exchange.accept):
        return
    offered = negotiation.WITH_STREAMS if info.verb in ACROSS_NAMESPACES else negotiation.ENCODINGS
    negotiation.check_route(exchange.accept, offered)


def find(catalog: Catalog, info: RequestInfo, warnings: list[str] | None = None) -> Target | Reply:
    """Return the target of a resource URL, or the 404 in plain text.

    See SRV-001…003. Where upstream responds with a Status, raise it: a 404, 405 or 500. The warning about a deprecated
    version is added to ``warnings``, even if an error follows.
    """
    resource = catalog.resource(info.group, info.resource)
    served = resource.versions.get(info.version) if resource is not None else None
    # upstream's router has paths such as /apis/GROUP/VERSION/proxy/… only for custom resources
    none = info.verb == "proxy" and _is_own(catalog, info)
    if none or resource is None or served is None or not _in_scope(served, info, resource):
        if not _is_own(catalog, info):
            return responses.page_not_found()
        if resource is not None and served is not None and not none and _is_everywhere(resource, served, info):
            raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
        raise status.resource_not_found()
    if resource.definition.unusable:
        raise status.internal("error resolving resource")
    warning = served.published.deprecation_warning
    if warnings is not None and warning and warning not in warnings:
        warnings.append(warning)
    endpoint = served.endpoints.get(info.subresource)
    # as kube-apiserver: for custom resources, path segments after a subresource are ignored
    beyond = info.rest and info.subresource != "proxy" and _is_own(catalog, info)
    if endpoint is None or beyond or _has_no_such_path(resource, served, info):
        if _is_own(catalog, info):
            raise status.resource_not_found()
        raise status.not_found(GroupResource(served.names.group, served.names.resource), info.name)
    wrong = info.verb in _BY_NAME and not info.subresource and bool(info.name) is (info.verb == "create")
    if wrong and _is_own(catalog, info):
        raise status.StatusError(405, "MethodNotAllowed", NOT_ALLOWED, {})
    return Target(resource, served, endpoint)


def _is_own(catalog: Catalog, info: RequestInfo) -> bool:
    """Report whether a URL is in a built-in group."""
    return info.prefix == "api" or (bool(info.group) and is_builtin(catalog, info.group))


def _is_everywhere(resource: ServedResource, served: ServedVersion, info: RequestInfo) -> bool:
    """Report whether a URL names a collection in all namespaces, which supports only reads."""
    return served.names.namespaced and info.namespace is None and not info.named and not resource.review


def _has_no_such_path(resource: ServedResource, served: ServedVersion, info: RequestInfo) -> bool:
    """Report whether upstream has no route for this URL of a built-in resource (ERR-14).

    Every method then gets a 404.
    """
    if info.verb == "watch" and info.subresource and resource.builtin:
        return True
    everywhere = served.names.namespaced and info.namespace is None
    if resource.review:
        return info.named or everywhere or "/watch/" in info.path
    return everywhere and info.named and resource.builtin


def _in_scope(served: ServedVersion, info: RequestInfo, resource: ServedResource) -> bool:
    if not served.names.namespaced:
        return info.namespace is None
    if info.namespace in _DOTS and info.verb != "create":
        return False
    return info.namespace is not None or (info.verb in ACROSS_NAMESPACES)


def _verb_label(exchange: Exchange, info: RequestInfo, served: ServedVersion) -> str:
    if info.verb == "list" and info.name and not served.model.typed:
        # upstream: a list whose field selector names one object is counted as a GET
        return "GET"
    if info.verb == "patch" and _is_apply(exchange):
        return "APPLY"
    return _METRIC_VERBS.get(info.verb) or (exchange.method if exchange.method.isalpha() else "")


def _is_apply(exchange: Exchange) -> bool:
    return exchange.headers.get("Content-Type", "").startswith("application/apply-patch")


def labels(info: RequestInfo, served: ServedVersion, verb: str) -> Labels:
    """Return the metric labels of a request for a resource (MTR-002)."""
    one = info.verb == "create" or (info.name and not (served.model.typed and verb == "LIST"))
    scope = "resource" if one else "namespace" if info.namespace else "cluster"
    return Labels(verb, served.names.group, served.names.version, served.names.resource, info.subresource, scope)


_PROBES = frozenset(f"/{endpoint}" for endpoint in health.ENDPOINTS)


def _document_labels(exchange: Exchange) -> Labels | None:
    """Return the metric labels of a request outside of resources.

    Return None if upstream does not count the request.
    """
    path, verb = exchange.path, "GET" if exchange.method == "HEAD" else exchange.method
    if path.startswith("/openapi/v3"):
        path = "openapi/v3" if path == "/openapi/v3" else "openapi/v3/"
    elif path not in _PROBES:
        return None
    return Labels(verb, "", "", "", path, "", "")
