"""Errors of the API: metav1.Status, with a function for each kind of error.

See the rows ERR-… of BEHAVIOUR.md.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from apiext.meta import limits
from apiext.meta.fields import FieldError, aggregate
from apiext.meta.names import GroupKind, GroupResource
from apiext.text.quotes import go_quote


class StatusError(Exception):
    """An error that the server returns to the client as a Status."""

    __slots__ = ("code", "details", "guarded", "message", "metadata", "reason")

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        # Two errors may have metadata: the 410 of a list, with a new continue token (RV-007), and a webhook's denial.
        self.metadata: Mapping[str, Any] = {}
        self.guarded = False  # true: the response gets X-Content-Type-Options: nosniff

    @property
    def retry_after(self) -> int:
        """Return the seconds for the Retry-After header, or 0 for a response without this header.

        See ERR-21.
        """
        return int((self.details or {}).get("retryAfterSeconds", 0))

    def document(self) -> dict[str, Any]:
        """Return the Status object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body


def _details(resource: GroupResource, name: str) -> dict[str, Any]:
    return {
        key: value for key, value in (("name", name), ("group", resource.group), ("kind", resource.resource)) if value
    }


def success(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Status of a finished delete (WRI-016)."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": dict(details)}


def is_status(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a Status, and not an object of a custom kind named Status."""
    return document.get("kind") == "Status" and document.get("apiVersion") == "v1"


def not_found(resource: GroupResource, name: str) -> StatusError:
    """Return the 404 of an object that does not exist (ERR-02)."""
    return StatusError(404, "NotFound", f"{resource} {go_quote(name)} not found", _details(resource, name))


def resource_not_found() -> StatusError:
    """Return the 404 of a path that names no served resource, as a Status (SRV-003)."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: GroupResource, name: str) -> StatusError:
    """Return the 409 of a create whose name already exists (ERR-04)."""
    return StatusError(409, "AlreadyExists", f"{resource} {go_quote(name)} already exists", _details(resource, name))


def generate_name_conflict(resource: GroupResource, name: str) -> StatusError:
    """Return the 409 of a create whose name, generated from generateName, already exists.

    See ERR-04.
    """
    taken = f"{resource} {go_quote(name)} already exists"
    text = f"{taken}, the server was not able to generate a unique name for the object"
    return StatusError(409, "AlreadyExists", text, _details(resource, name) | {"retryAfterSeconds": 1})


def conflict(resource: GroupResource, name: str, text: str) -> StatusError:
    """Return the 409 of a write with a conflict or a failed precondition (ERR-05, ERR-06)."""
    message = f"Operation cannot be fulfilled on {resource} {go_quote(name)}: {text}"
    return StatusError(409, "Conflict", message, _details(resource, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def bad_request(message: str) -> StatusError:
    """Return the 400 of an invalid request."""
    return StatusError(400, "BadRequest", message)


def invalid(kind: GroupKind | GroupResource, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return the 422 of an object with invalid fields.

    Each error becomes a cause, unless the errors exceed the limits of a response. See ERR-07.
    """
    errors = _bounded(errors)
    details: dict[str, Any] = {"name": name, "group": kind.group}
    details["kind"] = kind.kind if isinstance(kind, GroupKind) else kind.resource
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [
        {"reason": error.reason, "message": error.body, "field": error.field or "<nil>"} for error in errors
    ]
    return StatusError(422, "Invalid", f"{kind} {go_quote(name)} is invalid: {aggregate(errors)}", details)


def _bounded(errors: Sequence[FieldError]) -> Sequence[FieldError]:
    """Return the first errors, at least one, since the size of a response is limited.

    Return at most MAX_FIELD_ERRORS + 1 errors. Several errors have at most twice MAX_FIELD_ERROR_BYTES characters. Both
    limits are higher than those of ``fields.Errors``, since that list also contains the first error over its limits.
    """
    if len(errors) < 2:
        return errors
    sizes = accumulate(error.size for error in errors[: limits.MAX_FIELD_ERRORS + 1])
    fitting = bisect_right(list(sizes), 2 * limits.MAX_FIELD_ERROR_BYTES)
    return errors[: max(1, fitting)]


def unprocessable(message: str) -> StatusError:
    """Return the 422 of a patch that cannot be applied (WRI-007)."""
    return StatusError(422, "Invalid", message, {})


def forbidden(resource: GroupResource, name: str, text: str, causes: Sequence[Mapping[str, str]] = ()) -> StatusError:
    """Return a 403; ``text`` is the reason in the message (ERR-18, DEL-004, NSP-003)."""
    details = _details(resource, name)
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    subject = f"{resource} {go_quote(name)} is forbidden" if name else f"{resource} is forbidden"
    return StatusError(403, "Forbidden", f"{subject}: {text}", details)


def unauthorized() -> StatusError:
    """Return the 401 of a request without valid credentials (ERR-19)."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_supported(resource: GroupResource, verb: str) -> StatusError:
    """Return the 405 of a verb that the resource does not support (ERR-14)."""
    text = f'{verb} is not supported on resources of kind "{resource}"'
    details = {key: value for key, value in (("group", resource.group), ("kind", resource.resource)) if value}
    return StatusError(405, "MethodNotAllowed", text, details)


def not_acceptable(message: str) -> StatusError:
    """Return the 406 of an Accept header without a supported media type (ERR-15)."""
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """Return the 415 of a body in an unknown format (ERR-15)."""
    listed = ", ".join(accepted)
    text = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", text)


def too_large(limit: int) -> StatusError:
    """Return the 413 of a body that exceeds the limit in bytes (ERR-16)."""
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(message: str) -> StatusError:
    """Return the 410 of a compacted revision (ERR-17, RV-003, RV-009)."""
    return StatusError(410, "Expired", message)


def too_old_resource_version(asked: int, oldest: int) -> StatusError:
    """Return the 410 of a watch from a compacted revision (RV-009)."""
    return expired(f"too old resource version: {asked} ({oldest})")


def timeout(message: str, retry_after: int = 0, causes: Sequence[Mapping[str, str]] = ()) -> StatusError:
    """Return the 504 of a request that exceeds its timeout (ERR-20).

    The response to a write with an unknown outcome is the same error.
    """
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return StatusError(504, "Timeout", f"Timeout: {message}", details)


def too_large_resource_version(asked: int, current: int, retry_after: int = 1) -> StatusError:
    """Return the 504 of a read at a revision that the store has not reached (RV-002)."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return timeout(f"Too large resource version: {asked}, current: {current}", retry_after, [cause])


def too_many_requests(message: str) -> StatusError:
    """Return a 429 with a Retry-After (ERR-20, LIM-001)."""
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": 1})


def unavailable(message: str) -> StatusError:
    """Return a 503, for example for a store that does not respond; clients can safely retry."""
    return StatusError(503, "ServiceUnavailable", message, {"retryAfterSeconds": 1})


def internal(text: str) -> StatusError:
    """Return a 500 with upstream's prefix (ERR-20)."""
    return StatusError(500, "InternalError", f"Internal error occurred: {text}", {"causes": [{"message": text}]})


def unknown(text: str, code: int = 500) -> StatusError:
    """Return the Status of an error that is not an API error (ERR-22).

    The Status has the raw message and no reason.
    """
    return StatusError(code, "", text)
