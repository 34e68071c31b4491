"""Parse the method and URL of a request into verb, resource, name and subresource.

See SRV-001, AUT-004.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apiext.meta.selectors import FieldSelector, SelectorError
from apiext.meta.syntax import path_segment

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_VERBS_IN_PATHS = frozenset(("watch", "proxy"))
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))
_FALSE = frozenset(("false", "0"))


class RequestInfo(NamedTuple):
    """The parsed method and URL of a request.

    ``verb`` of a resource request is get, list, watch, create, update, patch, delete, deletecollection, proxy (which
    this server does not support) or empty (an unknown method). For other requests, ``verb`` is the method in lower
    case. ``namespace`` is None if the path has no namespace or an empty one, and for the core resource ``namespaces``.
    If the path contains no name, ``name`` is the name that the field selector requires, for lists and for watches with
    the parameter ``watch``. ``named`` is true if the path contains the name. ``rest`` are the path segments after the
    subresource.
    """

    is_resource: bool
    verb: str
    prefix: str = ""
    group: str = ""
    version: str = ""
    namespace: str | None = None
    resource: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""
    rest: tuple[str, ...] = ()
    named: bool = False


def parse(method: str, path: str, query: Mapping[str, Sequence[str]]) -> RequestInfo:
    """Return the attributes of a request.

    ``path`` is percent-decoded. ``query`` maps each parameter to all its values.
    """
    parts = path.strip("/").split("/")
    prefix = parts[0]
    first = 3 if prefix == "apis" else 2
    if len(parts) <= first or prefix not in ("apis", "api"):
        return RequestInfo(False, method.lower(), path=path)
    group = parts[1] if first == 3 else ""
    version = parts[first - 1]
    verb = _VERBS.get(method, "")
    if parts[first] in _VERBS_IN_PATHS:  # upstream: the old watch paths still work (RV-015)
        if len(parts) == first + 1:
            return RequestInfo(False, method.lower(), path=path)
        verb = parts[first]
        first += 1
    namespace: str | None = None
    if parts[first] == "namespaces" and len(parts) > first + 1:
        inside = len(parts) > first + 2 and parts[first + 2] not in _NAMESPACE_SUBRESOURCES
        # In /api/v1/namespaces/x, x is an object of the resource ``namespaces``. Below /apis, x is always a namespace.
        if inside or prefix == "apis":  # upstream: the segment after namespaces is always a namespace
            namespace = parts[first + 1] or None
        first += 2 * inside
    size = min(len(parts) - first, 2) if verb == "proxy" else len(parts) - first
    name = parts[first + 1] if size > 1 else ""
    named = bool(name)
    if not named and verb in ("get", "delete"):
        verb, name = _collection(verb, query)
    return RequestInfo(
        True,
        verb,
        prefix,
        group,
        version,
        namespace,
        parts[first],
        name,
        parts[first + 2] if size > 2 else "",
        path,
        tuple(parts[first + 3 :]) if size > 3 else (),
        named,
    )


def _collection(verb: str, query: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return (verb of a request for a collection, the name that its field selector requires)."""
    if not query:
        return ("list" if verb == "get" else "deletecollection"), ""
    if verb == "delete":
        return "deletecollection", ""  # upstream: ignores the name in the field selector of a delete
    verb = "watch" if truth(query.get("watch")) else "list"
    selector = query.get("fieldSelector")
    if not selector:
        return verb, ""
    try:
        name = FieldSelector.parse(selector[0]).exact("metadata.name")
    except SelectorError:
        return verb, ""
    return verb, name if name and not path_segment(name) else ""


def truth(values: Sequence[str] | None) -> bool:
    """Parse a boolean parameter as upstream (RV-016).

    Return False if the parameter is absent, ``0``, or ``false`` in any letter case, else True.
    """
    return values is not None and len(values) > 0 and values[0].lower() not in _FALSE
