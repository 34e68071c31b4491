"""Accept and Content-Type: the requested form of a response, and the encoding of a body.

The rows NEG-… of BEHAVIOUR.md list the behaviour.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from apiext.http import limits
from apiext.meta import media_types, status
from apiext.meta.media_types import PATCH_TYPES, TYPED_PATCH_TYPES

JSON, YAML, PROTOBUF = media_types.JSON, media_types.YAML, media_types.PROTOBUF
ENCODINGS, STREAMS = media_types.ENCODINGS, media_types.STREAMS
WITH_STREAMS = (*ENCODINGS, *STREAMS)
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_MEDIA_TYPE = re.compile(f"{_TOKEN}/{_TOKEN}")
_PARAMETER = re.compile(rf'\s*;\s*({_TOKEN})\s*=\s*({_TOKEN}|"[^"\\]*+(?:\\.[^"\\]*+)*")')
META_GROUP = "meta.k8s.io"
META_VERSIONS = ("v1", "v1beta1")
PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))

TRANSFORMS: Mapping[str, frozenset[str]] = {
    "Table": frozenset((JSON, YAML)),
    "PartialObjectMetadata": frozenset(ENCODINGS),
    "PartialObjectMetadataList": frozenset(ENCODINGS),
}
"""Representations that a client may request → encodings of each (TAB-001, PAR-001)."""

# Number of alternatives of an Accept header up to which Go uses insertion sort. The algorithm matters, since two
# alternatives may both compare as better than the other (``_better``).
_SORTED_BY_INSERTION = 12

P = ParamSpec("P")
T = TypeVar("T")


def _has_many_parts(header: str) -> bool:
    """Report whether a header has so many parts that parsing would block the event loop.

    The parts are its alternatives and parameters.
    """
    return header.count(",") + header.count(";") >= limits.HEADER_PARTS


def _cached(read: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Cache results for short headers only, since results may be large.

    Raise a 431 for headers with many parts.
    """
    cached: Any = lru_cache(limits.HEADERS_CACHED)(read)

    def find(header: str, /, *more: P.args, **named: P.kwargs) -> T:
        if len(header) > limits.HEADER_PARTS and _has_many_parts(header):
            text = f"an Accept or Content-Type header has more than {limits.HEADER_PARTS} parts"
            raise status.StatusError(431, "BadRequest", text)
        found: T = (cached if len(header) <= limits.HEADER_CACHED else read)(header, *more, **named)
        return found

    return find


class Wanted(Struct, frozen=True):
    """The requested form of a response: encoding, representation and indentation.

    An empty representation is the object itself. ``plain`` is true for the object itself in JSON without indentation:
    the server can send cached bytes unchanged.
    """

    encoding: str = JSON
    kind: str = ""
    version: str = ""
    pretty: bool = False
    plain: bool = False  # computed from the fields above; a property would cost more

    def __post_init__(self) -> None:
        force_setattr(self, "plain", self.encoding == JSON and not self.kind and not self.pretty)


PLAIN = Wanted()


class Clause(Struct, frozen=True):
    """One alternative of an Accept header."""

    type: str
    subtype: str
    quality: float
    parameters: tuple[tuple[str, str], ...]

    def matches(self, encoding: str) -> bool:
        """Report whether the alternative matches an encoding; case-sensitive, as upstream."""
        main, _, sub = encoding.partition("/")
        if self.type == "*":
            return self.subtype == "*"
        return self.type == main and self.subtype in {sub, "*"}


@_cached
def parse_accept(header: str) -> tuple[Clause, ...]:
    """Return the alternatives, best first: a higher q first, specific types before wildcards.

    If these two rules contradict each other, the later alternative in the header comes first, as in upstream. In a
    header with more than _SORTED_BY_INSERTION alternatives, a higher q then comes first. Malformed alternatives are
    ignored. A q that is not a number counts as 0; q=0 does not exclude an encoding.
    """
    found = [clause for part in header.split(",") if (clause := _clause(part.strip())) is not None]
    if len(found) > _SORTED_BY_INSERTION:
        return tuple(sorted(found, key=lambda c: (-c.quality, c.type == "*", c.subtype == "*")))
    ordered: list[Clause] = []
    for clause in found:
        position = len(ordered)
        while position and _better(clause, ordered[position - 1]):
            position -= 1
        ordered.insert(position, clause)
    return tuple(ordered)


def _better(one: Clause, other: Clause) -> bool:
    """Report whether an alternative sorts before another.

    As upstream, two may each sort before the other.
    """
    if one.quality > other.quality or (one.type != "*" and other.type == "*"):
        return True
    return one.subtype != "*" and other.subtype == "*"


def _clause(part: str) -> Clause | None:
    media, *texts = part.split(";")
    names = media.split("/")
    if len(names) == 1:
        if media.strip() != "*":
            return None
        names = ["*", "*"]
    if len(names) != 2 or not names[1]:
        return None
    quality = 1.0
    parameters = []
    for text in texts:
        pair = text.split("=")
        if len(pair) != 2 or not pair[1]:
            continue
        name, value = pair[0].strip(), pair[1].strip()
        if name == "q":
            quality = _quality(value)
        else:
            parameters.append((name, value))
    return Clause(names[0].strip(), names[1].strip(), quality, tuple(parameters))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@_cached
def negotiate(header: str, offered: tuple[str, ...], transforms: bool = True, tables: bool = True) -> Wanted | None:
    """Return the best form for an Accept header, plain JSON for an empty header.

    Return None if no form is acceptable. ``offered`` are the encodings of the object itself. Other representations have
    the encodings in TRANSFORMS; they are acceptable only if ``transforms`` is true, and a Table only if ``tables`` is
    true, too.
    """
    if not header:
        return PLAIN
    for clause in parse_accept(header):
        for encoding in ENCODINGS:
            if clause.matches(encoding):
                wanted = _wanted(clause, encoding, offered, transforms)
                if wanted is not None and (tables or wanted.kind != "Table"):
                    return wanted
    return None


def _wanted(clause: Clause, encoding: str, offered: tuple[str, ...], transforms: bool) -> Wanted | None:
    parameters = dict(clause.parameters)
    if parameters.get("stream", "watch") != "watch" or (parameters.get("stream") and encoding == YAML):
        return None
    pretty = parameters.get("pretty") == "1"
    kind, group, version = parameters.get("as"), parameters.get("g"), parameters.get("v")
    if kind is None and group is None and version is None:
        return Wanted(encoding, pretty=pretty) if encoding in offered else None
    if not transforms or group != META_GROUP or version not in META_VERSIONS or version is None:
        return None
    if encoding not in TRANSFORMS.get(kind or "", ()):
        return None
    return Wanted(encoding, kind or "", version, pretty)


def output(header: str, *, typed: bool, tables: bool = True) -> Wanted:
    """Return the form of an object or a list; raise a 406 if the client accepts no form.

    See ERR-15. ``typed`` is true if the object has a Go type upstream, so that it has a protobuf message. ``tables`` is
    true if the object has a Table.
    """
    wanted = negotiate(header, ENCODINGS if typed else (JSON, YAML), tables=tables)
    if wanted is None:
        raise not_acceptable(ENCODINGS)
    return wanted


def stream(header: str, *, typed: bool) -> Wanted:
    """Return the form of a watch's events.

    Raise a 406 for YAML, or if the client accepts no form. See NEG-008.
    """
    wanted = negotiate(header, ENCODINGS if typed else (JSON, YAML))
    if wanted is None or wanted.encoding == YAML:
        raise not_acceptable(STREAMS)
    return wanted


def for_status(header: str) -> Wanted | None:
    """Return the form of a Status; None if the client accepts no encoding of it (NEG-007).

    An Accept header with too many parts counts as absent.
    """
    if _has_many_parts(header):
        return PLAIN
    return negotiate(header, ENCODINGS, transforms=False)


@_cached
def _passes(header: str, offered: tuple[str, ...]) -> bool:
    """Report whether a header contains one of the ``offered`` media types.

    Parameters are ignored.
    """
    return not {part.partition(";")[0].strip(" ") for part in header.split(",")}.isdisjoint(offered)


def check_consumed(content_type: str, accepted: tuple[str, ...]) -> None:
    """Raise a 415 if a route of the built-in API does not accept the media type in Content-Type.

    Upstream: the router validates the header before the body is read, even for an empty body.
    """
    if content_type and not _passes(content_type, accepted):
        raise _not_consumed()


def check_patched(content_type: str) -> None:
    """Raise a 415 for an unknown patch type of the built-in API (SRV-012, NEG-008)."""
    if not _passes(content_type, TYPED_PATCH_TYPES):
        raise _not_consumed()


def _not_consumed() -> status.StatusError:
    return status.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def check_route(accept: str, offered: tuple[str, ...]) -> None:
    """Raise a 406 if a route of the built-in API has no acceptable encoding (ERR-15).

    Upstream: the router checks the header before any handler does, and supports no wildcard but ``*/*``.
    """
    if accept and not _passes(accept, (*offered, "*/*")):
        text = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
        raise status.StatusError(406, "NotAcceptable", text, {})


def not_acceptable(offered: Sequence[str]) -> status.StatusError:
    """Return the 406 that lists the offered media types."""
    return status.not_acceptable(f"only the following media types are accepted: {', '.join(offered)}")


def wants_pretty(query_values: Sequence[str], user_agent: str) -> bool:
    """Report whether to indent JSON: by ``?pretty=``, else by the user agent (NEG-005).

    Without ``?pretty=``, indent for browsers, curl and Wget.
    """
    if query_values and query_values[0]:
        return query_values[0] in _TRUE
    return user_agent.startswith(PRETTY_AGENTS)


@_cached
def media_type(header: str) -> str:
    """Return the lower-case media type of a Content-Type; empty for a malformed header."""
    base, semicolon, rest = header.partition(";")
    text = base.strip().lower()
    if not _MEDIA_TYPE.fullmatch(text):
        return ""
    given: dict[str, str] = {}
    rest = (semicolon + rest).rstrip().removesuffix(";").rstrip()  # a trailing semicolon is ignored
    at = 0
    while at < len(rest):
        found = _PARAMETER.match(rest, at)
        if found is None:
            return ""
        name, value = found[1].lower(), found[2]
        if given.setdefault(name, value) != value:
            return ""
        at = found.end()
    return text


def body_encoding(header: str) -> str:
    """Return the encoding of a body, JSON without a header; raise a 415 for an unknown encoding.

    See ERR-15.
    """
    if not header or header == JSON:
        return JSON
    found = media_type(header)
    if found not in ENCODINGS:
        raise status.unsupported_media_type(ENCODINGS)
    return found


def patch_type(header: str, *, typed: bool) -> str:
    """Return the media type of a patch; raise a 415 if the resource does not accept it.

    See SRV-012, NEG-008.
    """
    accepted = TYPED_PATCH_TYPES if typed else PATCH_TYPES
    found = header.partition(";")[0]
    if found not in accepted:
        raise status.unsupported_media_type(accepted)
    return found
