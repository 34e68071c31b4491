"""AdmissionReviews: how a write is put to a webhook, and what is checked of its answer (ADM-007, ADM-009, ADM-010)."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from apiext.admission.attributes import Attributes, Form
from apiext.admission.expressions import request
from apiext.admission.versions import Shown
from apiext.crd.typed import INT32, Bool, Bytes, Field, Json, List, Map, Struct, Text, decode
from apiext.documents.document import Document
from apiext.documents.encoding import decode_json, json_kind
from apiext.documents.errors import DecodeError
from apiext.meta.fields import go_quote
from apiext.meta.status import StatusError
from apiext.meta.uids import Uids

GROUP = "admission.k8s.io"
KIND = "AdmissionReview"
VERSIONS = ("v1", "v1beta1")
_TEXT = Text()
_UIDS = Uids()


def _pointer(type: Any) -> Field:
    return Field(type, pointer=True)


_CAUSE = Struct("StatusCause", {"reason": Field(Text("v1.CauseType")), "message": Field(_TEXT), "field": Field(_TEXT)})
_DETAILS = Struct(
    "StatusDetails",
    {
        "name": Field(_TEXT),
        "group": Field(_TEXT),
        "kind": Field(_TEXT),
        "uid": Field(Text("types.UID")),
        "causes": Field(List(_CAUSE)),
        "retryAfterSeconds": Field(INT32),
    },
)
_RESULT = Struct(
    "Status",
    {
        "kind": Field(_TEXT),
        "apiVersion": Field(_TEXT),
        "metadata": Field(Json()),
        "status": Field(_TEXT),
        "message": Field(_TEXT),
        "reason": Field(Text("v1.StatusReason")),
        "details": _pointer(_DETAILS),
        "code": Field(INT32),
    },
)
_RESPONSE = Struct(
    "AdmissionResponse",
    {
        "uid": Field(Text("types.UID")),
        "allowed": Field(Bool()),
        "status": _pointer(_RESULT),
        "patch": Field(Bytes()),
        "patchType": _pointer(Text("v1.PatchType")),
        "auditAnnotations": Field(Map(_TEXT)),
        "warnings": Field(List(_TEXT)),
    },
)
_REVIEW = Struct(KIND, {"kind": Field(_TEXT), "apiVersion": Field(_TEXT), "response": _pointer(_RESPONSE)})


class NotAReview(ValueError):
    """An answer that cannot be decoded; the text is what Go's decoder says."""


class BadReview(ValueError):
    """An answer that breaks the rules of reviews."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a webhook said. ``patch`` is JSON of operations, empty when there is none."""

    allowed: bool
    result: Mapping[str, Any] = field(default_factory=dict)
    patch: bytes = b""
    patch_type: str = ""
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def version_of(accepted: Sequence[str]) -> str:
    """Return the first review version that this server can send; raises BadReview."""
    for version in accepted:
        if version in VERSIONS:
            return version
    raise BadReview("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


def new_uid() -> str:
    """Return the uid of a new review; on the loop only."""
    return _UIDS.next()


def review(version: str, uid: str, attributes: Attributes, form: Form, shown: Shown) -> bytes:
    """Return a review as JSON."""
    new, old = shown.fragments
    asked = {"uid": uid, **request(attributes, form), "object": new, "oldObject": old}
    return orjson.dumps({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": asked})


def response_of(raw: bytes, version: str, uid: str, *, mutating: bool) -> Response:
    """Return what an answer says; raises NotAReview, BadReview, or StatusError when it is a failed Status."""
    document = _decoded(raw)
    given = document.get("response")
    if given is None:
        raise BadReview("webhook response was absent")
    patch, patch_type = _patch(given.get("patch")), given.get("patchType")
    if version == "v1":  # upstream: v1beta1 answers are not checked
        _check(document, given, uid)
        (_check_mutating if mutating else _check_validating)(patch, patch_type)
    else:
        patch, patch_type = (patch if mutating else b""), "JSONPatch"
    return Response(
        bool(given.get("allowed")),
        given.get("status") or {},
        patch,
        patch_type or "",
        tuple(given.get("warnings") or ()),
        given.get("auditAnnotations") or {},
    )


def _decoded(raw: bytes) -> Document:
    try:
        document, _ = decode_json(raw)
    except DecodeError as error:
        raise NotAReview(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(document, dict):
        go = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        text = f"json: cannot unmarshal {json_kind(document)} into Go value of type {go}"
        raise NotAReview(f"couldn't get version/kind; json parse error: {text}")
    if document.get("kind") == "Status" and document.get("apiVersion") == "v1" and document.get("status") == "Failure":
        code = document.get("code")
        raise StatusError(code if isinstance(code, int) else 500, "", str(document.get("message") or "unknown"))
    try:
        found: Document = decode(_REVIEW, document)[0]
    except DecodeError as error:
        raise NotAReview(str(error)) from error
    return found


def _patch(given: str | None) -> bytes:
    return b64decode(given) if given else b""


def _check(document: Document, given: Document, uid: str) -> None:
    if given.get("uid", "") != uid:
        raise BadReview(f"expected response.uid={go_quote(uid)}, got {go_quote(given.get('uid', ''))}")
    found = f"{_go_version(document.get('apiVersion') or '')}, Kind={document.get('kind') or ''}"
    if found != (wanted := f"{GROUP}/v1, Kind={KIND}"):
        raise BadReview(f"expected webhook response of {wanted}, got {found}")


def _go_version(text: str) -> str:
    return text if "/" in text else f"/{text}"


def _check_mutating(patch: bytes, patch_type: str | None) -> None:
    if patch and patch_type is None:
        raise BadReview("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise BadReview("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise BadReview('webhook returned invalid response.patchType of ""')


def _check_validating(patch: bytes, patch_type: str | None) -> None:
    if patch:
        raise BadReview("validating webhook may not return response.patch")
    if patch_type is not None:
        raise BadReview("validating webhook may not return response.patchType")


def denial(name: str, result: Mapping[str, Any]) -> StatusError:
    """Return the error of a write that a webhook refused (ADM-010)."""
    code = int(result.get("code") or 0)
    reason, message = result.get("reason") or "", result.get("message") or ""
    by = f"admission webhook {go_quote(name)} denied the request"
    text = f"{by}: {message or reason}" if message or reason else f"{by} without explanation"
    details = result.get("details")
    code = code if 400 <= code <= 999 else 400  # upstream sends codes over 999 to net/http, which panics
    return StatusError(code, reason, text, details)
