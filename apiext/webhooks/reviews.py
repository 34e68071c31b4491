"""Decode the responses of webhooks as Go's codecs do, and check kinds and field types.

Upstream: rest.Result.Into.
"""

from collections.abc import Mapping
from typing import Any

from apiext.documents.document import Document
from apiext.documents.encoding import decode_json, decode_yaml, json_kind
from apiext.documents.errors import DecodeError
from apiext.go_types.typed import INT32, Field, Integer, List, Struct, Text, decode

VERSIONS = ("v1", "v1beta1")
"""The versions of AdmissionReview and ConversionReview, the preferred version first."""

_TEXT = Text()
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_SCHEME = "pkg/runtime/scheme.go:111"  # the name of the scheme in upstream's error messages
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
_LIST_META = Struct(
    "ListMeta",
    {
        "selfLink": Field(_TEXT),
        "resourceVersion": Field(_TEXT),
        "continue": Field(_TEXT),
        "remainingItemCount": Field(Integer(), pointer=True),
    },
)
STATUS = Struct(
    "Status",
    {
        "kind": Field(_TEXT),
        "apiVersion": Field(_TEXT),
        "metadata": Field(_LIST_META),
        "status": Field(_TEXT),
        "message": Field(_TEXT),
        "reason": Field(Text("v1.StatusReason")),
        "details": Field(_DETAILS, pointer=True),
        "code": Field(INT32),
    },
)


class NotAReview(ValueError):
    """A response that cannot be decoded; the message is that of Go's decoder."""


def review_types(kind: str, name: str, fields: Mapping[str, Field]) -> Mapping[str, Struct]:
    """Return version → Go type of a review.

    ``name`` and ``fields`` describe the type of its ``response``.
    """
    return {version: _review(kind, Struct(name, fields, package=version), version) for version in VERSIONS}


def _review(kind: str, response: Struct, version: str) -> Struct:
    fields = {"kind": Field(_TEXT), "apiVersion": Field(_TEXT), "response": Field(response, pointer=True)}
    return Struct(kind, fields, package=version)


def decoded(raw: bytes) -> Any:
    """Decode a response: JSON if it begins with a brace, else YAML. Raises NotAReview."""
    if raw.lstrip()[:1] == b"{":
        try:
            return decode_json(raw)[0]
        except DecodeError as error:
            raise NotAReview(f"couldn't get version/kind; json parse error: {error}") from error
    try:
        return decode_yaml(raw)[0]
    except DecodeError as error:
        raise NotAReview(str(error)) from error


def typed(document: Any, types: Mapping[str, Struct], group: str, version: str) -> Document:
    """Return the fields of a review.

    Raise NotAReview for another kind or version, or a field of a wrong type.
    """
    meta = {} if document is None else document
    if not isinstance(meta, dict):
        text = f"json: cannot unmarshal {json_kind(meta)} into Go value of type {_TYPE_META}"
        raise NotAReview(f"couldn't get version/kind; json parse error: {text}")
    for name in ("apiVersion", "kind"):
        value = meta.get(name)
        if value is not None and not isinstance(value, str):
            text = f"json: cannot unmarshal {json_kind(value)} into Go struct field .{name} of type string"
            raise NotAReview(f"couldn't get version/kind; json parse error: {text}")
    wanted = types[version]
    actual = _type_of(meta.get("apiVersion") or f"{group}/{version}", meta.get("kind") or wanted.name, types, group)
    try:
        found: Document = decode(actual, meta)[0]
    except DecodeError as error:
        raise NotAReview(str(error)) from error
    if actual is not wanted:
        raise NotAReview(f"converting ({actual.go}) to ({wanted.go}): unknown conversion")
    return found


def _type_of(api_version: str, kind: str, types: Mapping[str, Struct], group: str) -> Struct:
    """Return the Go type for the apiVersion and kind of a response.

    Raise NotAReview if upstream has none.
    """
    if api_version.count("/") > 1:
        raise NotAReview(f"unexpected GroupVersion string: {api_version}")
    if (api_version, kind) == ("v1", "Status"):
        return STATUS
    of, _, at = api_version.rpartition("/")
    known = types.get(at)
    if known is None or of != group or kind != known.name:
        raise NotAReview(f'no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
    return known
