"""Audit events: the collected attributes of a request, and their JSON as in kube-apiserver.

See AUD-001, AUD-002.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from apiext.audit.policy import API_VERSION, COMPLETE, LEVELS, RECEIVED, REQUEST, Verdict
from apiext.documents.document import View
from apiext.documents.encoding import DecodeError, decode_json, decode_yaml, encode_in_order
from apiext.documents.errors import BoundExceeded, OverflowingNumber
from apiext.text.quotes import go_quote

# Estimated memory of an audit event without its objects and strings, in bytes.
AUDIT_EVENT_BYTES = 1024

TRUNCATED = "audit.k8s.io/truncated"
DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
_DEPRECATED = "k8s.io/deprecated"
LATENCY = "apiserver.latency.k8s.io/total"
_KIND = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",'
_PATCH = "patch.webhook.admission.k8s.io/"
_META = ("namespace", "name", "uid", "resourceVersion")
_REFERENCE = ("resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource")
_ESCAPES = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"), (b"\xe2\x80\xa8", b"\\u2028"),
            (b"\xe2\x80\xa9", b"\\u2029"))  # fmt: skip
"""(character, escape): further escapes of Go's JSON encoder. JSON contains these characters only in strings."""

Read = Callable[[], bytes]
"""Returns the JSON of an object, empty if there is none. A thread calls this function.

Raises TypeError or ValueError if the object cannot be encoded.
"""


class Annotations(dict[str, str]):
    """Annotations of an event; a later value of the same annotation is ignored.

    At audit levels below Request, annotations that contain patches of webhooks are ignored.
    """

    __slots__ = ("_level",)

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def __setitem__(self, name: str, value: str) -> None:
        """Set an annotation, unless the event has it already or its level excludes it."""
        if name not in self and (self._level >= REQUEST or not name.startswith(_PATCH)):
            super().__setitem__(name, value)


class User(Protocol):
    """An authenticated user."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups."""

    @property
    def uid(self) -> str:
        """The uid, or an empty string."""

    @property
    def extra(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """(name, values) of each extra attribute."""


class RequestAttributes(Struct, frozen=True):
    """The attributes of a request that are known before its response.

    ``received`` is a Unix time.
    """

    audit_id: str
    uri: str
    verb: str
    user: Mapping[str, Any]
    sources: Sequence[str]
    agent: str
    received: float


class Event(Struct):
    """A complete event; the backends encode it in a thread.

    ``at`` is the Unix time of the stage. ``size`` is the approximate memory of the event in bytes.
    """

    verdict: Verdict
    stage: str
    attributes: RequestAttributes
    at: float
    impersonated: Mapping[str, Any] | None
    constraint: str
    reference: Mapping[str, str]
    status: Mapping[str, Any] | None
    request: Read | None = None
    response: Read | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    _line: bytes = b""

    def line(self) -> bytes:
        """Return the event as JSON, without a newline."""
        if not self._line:
            try:
                self._line = escaped(dumped(self._document()))
            except (TypeError, ValueError):  # an object that cannot be encoded; the event must not be lost
                bare = replace(self, request=None, response=None)
                self._line = escaped(dumped(bare._document()))
        return self._line

    def item(self) -> bytes:
        """Return the event as an item of an EventList, without kind and apiVersion."""
        return b"{" + self.line()[len(_KIND) :]

    def truncated(self) -> "Event":
        """Return the event without its objects, annotated as truncated."""
        annotations = {**self.annotations, TRUNCATED: "true"}
        return replace(self, request=None, response=None, annotations=annotations, _line=b"")

    def _document(self) -> dict[str, Any]:
        request = self.attributes
        found: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": API_VERSION,
            "level": LEVELS[self.verdict.level],
            "auditID": request.audit_id,
            "stage": self.stage,
            "requestURI": request.uri,
            "verb": request.verb,
            "user": request.user,
        }
        if self.impersonated is not None:
            found["impersonatedUser"] = self.impersonated
        if self.constraint:
            found["authenticationMetadata"] = {"impersonationConstraint": self.constraint}
        if request.sources:
            found["sourceIPs"] = request.sources
        if request.agent:
            found["userAgent"] = request.agent
        if self.reference:
            found["objectRef"] = {name: self.reference[name] for name in _REFERENCE if self.reference.get(name)}
        if self.status is not None:
            found["responseStatus"] = self.status
        for name, read in (("requestObject", self.request), ("responseObject", self.response)):
            raw = read() if read is not None else b""
            if raw:
                found[name] = orjson.Fragment(raw)
        found["requestReceivedTimestamp"] = micro_time(request.received)
        found["stageTimestamp"] = micro_time(self.at)
        if self.annotations:
            found["annotations"] = dict(sorted(self.annotations.items()))
        return found

    def legacy(self) -> bytes:
        """Return the event as one line of text (--audit-log-format=legacy)."""
        request, acting = self.attributes, self.impersonated
        shown = {
            "id": request.audit_id,
            "stage": self.stage,
            "ip": request.sources[0] if request.sources else "<unknown>",
            "method": request.verb,
            "user": request.user.get("username") or "<none>",
        }
        groups = request.user.get("groups") if request.user.get("username") else None
        parts = [f"{name}={go_quote(value)}" for name, value in shown.items()]
        parts.append(f"groups={go_quote(_quoted(groups) or '<none>')}")
        parts.append(f"as={go_quote(acting['username'] if acting is not None else '<self>')}")
        groups_as = _quoted(acting.get("groups")) if acting is not None else ""
        parts.append(f"asgroups={go_quote(groups_as or '<lookup>')}")
        parts.append(f"user-agent={go_quote(request.agent)}")
        parts.append(f"namespace={go_quote(self.reference.get('namespace') or '<none>')}")
        parts.append(f"uri={go_quote(request.uri)}")
        code = self.status.get("code") if self.status is not None else "<deferred>"
        return f'{micro_time(request.received)} AUDIT: {" ".join(parts)} response="{code}"'.encode()


def _quoted(names: Sequence[str] | None) -> str:
    return ",".join(map(go_quote, names or ()))


def dumped(document: Any) -> bytes:
    """Encode to JSON; replace bytes that are not UTF-8, which headers and paths may contain."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return orjson.dumps(_legible(document))


def _legible(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_legible(name): _legible(item) for name, item in value.items()}
    return [_legible(item) for item in value] if isinstance(value, list | tuple) else value


def _length(value: Any) -> int:
    """Return the number of characters in all strings of a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(name) + _length(item) for name, item in value.items())
    return sum(map(_length, value)) if isinstance(value, list | tuple) else 0


def escaped(raw: bytes) -> bytes:
    """Add the further escapes of Go's JSON encoder (``_ESCAPES``)."""
    for character, escape in _ESCAPES:
        raw = raw.replace(character, escape)
    return raw


def micro_time(seconds: float) -> str:
    """Format a Unix time with microseconds, such as ``2026-11-29T21:45:56.000000Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def user_info(user: User) -> dict[str, Any]:
    """Return the user as events contain it."""
    found: dict[str, Any] = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    if user.extra:
        found["extra"] = {name: list(values) for name, values in sorted(user.extra)}
    return {name: value for name, value in found.items() if value}


class Trail:
    """The attributes of a request in progress, for the events of all its stages."""

    __slots__ = (
        "_attributes_size",
        "_constraint",
        "_request",
        "_size",
        "annotations",
        "attributes",
        "deprecated",
        "impersonated",
        "reference",
        "verdict",
    )

    def __init__(self, verdict: Verdict, attributes: RequestAttributes, reference: dict[str, str]) -> None:
        self.verdict = verdict
        self.attributes = attributes
        self.reference = reference
        self.annotations = Annotations(verdict.level)
        self.deprecated = False  # true if the requested version is deprecated; upstream annotates only the last event
        self.impersonated: Mapping[str, Any] | None = None
        self._constraint = ""
        self._request: Read | None = None
        self._size = 0
        self._attributes_size = (
            _length(attributes.uri) + _length(attributes.user) + _length(attributes.sources) + AUDIT_EVENT_BYTES
        )

    def constrained(self, verb: str) -> None:
        """Record the verb of the permission that allowed the impersonation."""
        self._constraint = verb

    def requested(self, document: View) -> None:
        """Record the object in the request body, before defaulting and admission.

        Complete the object reference of the event from the metadata of the object.
        """
        metadata = document.get("metadata")
        if metadata.__class__ is dict:
            for name in _META:
                value = metadata.get(name)
                if value.__class__ is str and not self.reference.get(name):
                    self.reference = {**self.reference, name: value}
        if self.verdict.level >= REQUEST:
            if self.verdict.omit_managed_fields:
                document = without_managed_fields(document)
            self._keep(encode_in_order(document))

    def options(self, document: View) -> None:
        """Record the options of a delete in the internal version, as upstream does."""
        if self.verdict.level >= REQUEST:
            own = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal"}
            kept = {name: document[name] for name in _OPTIONS if document.get(name) not in (None, [])}
            self._keep(encode_in_order(own | kept))

    def patched(self, raw: bytes) -> None:
        """Record the body of a patch as compact JSON, even if it is YAML."""
        if self.verdict.level >= REQUEST:
            self._request, self._size = lambda: _as_json(raw), len(raw)

    def _keep(self, raw: bytes) -> None:
        self._request, self._size = lambda: raw, len(raw)

    def event(
        self,
        stage: str,
        at: float,
        status: Mapping[str, Any] | None = None,
        response: Read | None = None,
        size: int = 0,
    ) -> Event:
        """Return the event of a stage; ``size`` is the number of bytes of the response.

        ``at`` is the Unix time of the stage. For the stage RequestReceived, the time when the request arrived replaces
        ``at``.
        """
        annotations = dict(self.annotations)
        if stage == RECEIVED:
            at = self.attributes.received
        if stage == COMPLETE and self.deprecated:
            annotations[_DEPRECATED] = "true"
        held = (
            size
            + self._size
            + self._attributes_size
            + _length(annotations)
            + _length(status)
            + _length(self.impersonated)
        )
        return Event(
            self.verdict,
            stage,
            self.attributes,
            at,
            self.impersonated,
            self._constraint,
            self.reference,
            status,
            self._request,
            response,
            annotations,
            held,
        )


_OPTIONS = (
    "gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy", "dryRun",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
)  # fmt: skip


def _as_json(raw: bytes) -> bytes:
    """Return the compact JSON of a patch.

    If a number is too large, return the JSON as it is. If the patch exceeds a limit, return its text as a JSON string.
    """
    try:
        return orjson.dumps(orjson.loads(raw))
    except orjson.JSONDecodeError:
        pass
    try:
        document, _ = decode_json(raw)
    except OverflowingNumber:
        return raw.decode(errors="replace").encode()
    except BoundExceeded:
        return orjson.dumps(raw.decode(errors="replace"))
    except DecodeError:
        document, _ = decode_yaml(raw)
    return encode_in_order(document) if isinstance(document, dict | list) else orjson.dumps(document)


def without_managed_fields(document: View) -> View:
    """Return an object, a list or a Table without managedFields (AUD-002)."""
    found: View = _bare(document)
    items, rows = found.get("items"), found.get("rows")
    if isinstance(items, list):
        found = {**found, "items": [_bare(item) for item in items]}
    if isinstance(rows, list) and found.get("kind") == "Table" and found.get("apiVersion") in _TABLES:
        found = {**found, "rows": [row_without_managed_fields(row) for row in rows]}
    return found


_TABLES = ("meta.k8s.io/v1", "meta.k8s.io/v1beta1")


def row_without_managed_fields(row: Any) -> Any:
    """Return a row of a Table without managedFields."""
    return {**row, "object": _bare(row["object"])} if isinstance(row, dict) and "object" in row else row


def _bare(document: Any) -> Any:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return document
    return {**document, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def response_status(code: int, status: View | None = None) -> dict[str, Any]:
    """Return the responseStatus of an event: the code, and some fields of a Status.

    The fields are those that upstream records.
    """
    found: dict[str, Any] = {"metadata": {}}
    if status is not None:
        found |= {name: status[name] for name in ("status", "message", "reason") if status.get(name)}
        if status.get("details") is not None:
            found["details"] = status["details"]
    found["code"] = code
    return found


def go_duration(seconds: float) -> str:
    """Return a duration between a millisecond and an hour as Go prints it."""
    if seconds < 1:
        return f"{_trimmed(seconds * 1e3)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{_trimmed(rest)}s" if minutes else f"{_trimmed(rest)}s"


def _trimmed(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
