"""AdmissionReviews: the request to a webhook, and the validation of its response.

See ADM-007, ADM-009, ADM-010.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from apiext.admission.attributes import Attributes, Form
from apiext.admission.expressions import request
from apiext.admission.versions import ObjectPair
from apiext.documents.document import Document
from apiext.go_types.typed import Bool, Bytes, Field, List, Map, Text
from apiext.meta.status import StatusError
from apiext.meta.uids import Uids
from apiext.text.quotes import go_quote
from apiext.webhooks.reviews import STATUS, VERSIONS, decoded, review_types, typed

GROUP = "admission.k8s.io"
KIND = "AdmissionReview"
_TEXT = Text()


_RESPONSE = {
    "uid": Field(Text("types.UID")),
    "allowed": Field(Bool()),
    "status": Field(STATUS, pointer=True),
    "patch": Field(Bytes()),
    "patchType": Field(Text("v1.PatchType"), pointer=True),
    "auditAnnotations": Field(Map(_TEXT)),
    "warnings": Field(List(_TEXT)),
}
_REVIEWS = review_types(KIND, "AdmissionResponse", _RESPONSE)


class BadReview(ValueError):
    """The error of a response that is no valid AdmissionReview.

    It is also the error of a webhook that accepts no review version of this server.
    """


class Response(Struct, frozen=True):
    """The response of a webhook. ``patch`` is the JSON of a patch, empty without a patch."""

    allowed: bool
    result: Mapping[str, Any] = field(default_factory=dict)
    patch: bytes = b""
    patch_type: str = ""
    warnings: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def version_of(accepted: Sequence[str]) -> str:
    """Return the first accepted review version that this server supports; raises BadReview."""
    for version in accepted:
        if version in VERSIONS:
            return version
    raise BadReview("webhook does not accept known AdmissionReview versions (v1, v1beta1)")


new_uid = Uids().next
"""Return the uid of a new review."""


def review(version: str, uid: str, attributes: Attributes, form: Form, objects: ObjectPair) -> bytes:
    """Return an AdmissionReview with a request, encoded as JSON."""
    new, old = objects.fragments
    asked = {"uid": uid, **request(attributes, form), "object": new, "oldObject": old}
    return orjson.dumps({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": asked})


def response_of(raw: bytes, version: str, uid: str, *, mutating: bool) -> Response:
    """Decode and validate the body of a webhook's response; raise NotAReview or BadReview."""
    if _only_allows(raw, version, uid):
        return _ALLOWED
    document = typed(decoded(raw), _REVIEWS, GROUP, version)
    given = document.get("response")
    if given is None:
        raise BadReview("webhook response was absent")
    patch, patch_type = _patch(given.get("patch")), given.get("patchType")
    if version == "v1":  # upstream: uid and kind of v1beta1 responses are not validated
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


_ALLOWED = Response(allowed=True)


def _only_allows(raw: bytes, version: str, uid: str) -> bool:
    """Fast path of ``response_of``: report whether the response only allows the write.

    Most responses do.
    """
    # A response with more than two objects, or with an array, has more fields than uid and allowed.
    if raw.count(b"{") != 2 or b"[" in raw:
        return False
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    yes = {"kind": KIND, "apiVersion": f"{GROUP}/{version}", "response": {"uid": uid, "allowed": True}}
    return bool(found == yes and found["response"]["allowed"] is True)  # ``is``, since 1 == True in Python


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
    """Return the error for a write that a webhook denied (ADM-010)."""
    code = int(result.get("code") or 0)
    reason, message = result.get("reason") or "", result.get("message") or ""
    by = f"admission webhook {go_quote(name)} denied the request"
    text = f"{by}: {message or reason}" if message or reason else f"{by} without explanation"
    details = result.get("details")
    code = code if 400 <= code <= 999 else 400  # upstream panics in net/http for codes over 999; here they become 400
    error = StatusError(code, reason, text, details)
    error.metadata = result.get("metadata") or {}
    return error
