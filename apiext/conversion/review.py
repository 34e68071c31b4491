"""ConversionReviews: how objects are put to a webhook, and what is checked of its answer (VER-004…007)."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from apiext.catalog.converted import NeedsConversion
from apiext.documents.document import Document, View
from apiext.documents.encoding import DecodeError, decode_json, encode, json_kind
from apiext.meta import objectmeta
from apiext.meta.fields import FieldError, go_quote

GROUP = "apiextensions.k8s.io"
KIND = "ConversionReview"
REVIEWS = ("v1", "v1beta1")
_CHANGEABLE = ("labels", "annotations")


class ConversionError(Exception):
    """Objects could not be converted; the text is the message of the 500 that a client reads (VER-008).

    ``failure`` is the name by which metrics count it (VER-013).
    """

    def __init__(self, text: str, failure: str) -> None:
        super().__init__(text)
        self.failure = failure


CALL = "conversion_webhook_call_failure"
MALFORMED = "conversion_webhook_malformed_response_failure"
PARTIAL = "conversion_webhook_partial_response_failure"
INVALID_OBJECT = "conversion_webhook_invalid_converted_object_failure"


def review_version(supported: Sequence[str]) -> str:
    """Return the first version that this server can send; raises ConversionError when there is none (VER-004)."""
    for version in supported:
        if version in REVIEWS:
            return version
    raise ConversionError("no supported conversion review versions", CALL)


def request(version: str, uid: str, needs: Sequence[NeedsConversion]) -> bytes:
    """Return the review that asks for objects in another version, the same for all."""
    objects = [orjson.Fragment(need.text) for need in needs]
    asked = {"uid": uid, "desiredAPIVersion": needs[0].api_version, "objects": objects}
    return orjson.dumps({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": asked})


def kind_of(document: View) -> str:
    """Return group, version and kind of an object as Go prints them."""
    return _go_kind(document.get("apiVersion"), document.get("kind"))


def failed(document: View, text: object) -> str:
    """Return the message about a call that failed, by its first object (VER-008)."""
    return f"conversion webhook for {kind_of(document)} failed: {text}"


def is_empty(document: View) -> bool:
    """Tell whether an object has nothing but apiVersion and kind: such are never sent (VER-011)."""
    return len(document) == 2 and "kind" in document and "apiVersion" in document


def converted_objects(version: str, uid: str, needs: Sequence[NeedsConversion], raw: bytes) -> list[Any]:
    """Return what the answer to a review holds for each object asked about, unchecked (VER-005).

    Raises ConversionError when the answer as a whole is no success or holds another number of objects.
    """
    try:
        review = _decoded(raw)
        found = _objects_of(version, uid, review)
    except ValueError as error:
        raise ConversionError(failed(needs[0].document, error), MALFORMED) from error
    if len(found) != len(needs):
        first = kind_of(needs[0].document)
        raise ConversionError(
            f"conversion webhook for {first} returned {len(found)} objects, expected {len(needs)}", PARTIAL
        )
    return found


_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


def _decoded(raw: bytes) -> Document:
    try:
        review = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            review = decode_json(raw)[0]  # slower, with Go's words for what is wrong
        except DecodeError as error:
            raise ValueError(f"couldn't get version/kind; json parse error: {error}") from error
    if review is None:
        return {}
    if not isinstance(review, dict):
        raise ValueError(  # noqa: TRY004 - one kind of error for whatever is wrong with an answer
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_kind(review)} into Go value "
            f"of type {_TYPE_META}"
        )
    return review


def _objects_of(version: str, uid: str, review: View) -> list[Any]:
    if version == "v1":  # upstream: v1beta1 processing did not verify GVK or UID
        wanted, found = f"{GROUP}/{version}, Kind={KIND}", kind_of(review)
        if found != wanted:
            raise ValueError(f"expected webhook response of {wanted}, got {found}")
    response = review.get("response")
    if not isinstance(response, Mapping):
        raise ValueError("no response provided")  # noqa: TRY004
    if version == "v1" and (found := response.get("uid") or "") != uid:
        raise ValueError(f"expected response.uid={go_quote(uid)}, got {go_quote(str(found))}")
    result = response.get("result")
    outcome: Mapping[str, Any] = result if isinstance(result, Mapping) else {}
    if outcome.get("status") != "Success":
        message = outcome.get("message")
        raise ValueError(str(message or f"response.result.status was '{outcome.get('status') or ''}', not 'Success'"))
    objects = response.get("convertedObjects")
    return objects if isinstance(objects, list) else []


def accepted(need: NeedsConversion, given: Any, index: int, count: int) -> tuple[Document, bytes]:
    """Return a converted object with the metadata of its original; ConversionError when it is not acceptable.

    The second value are its metadata as text, empty when the webhook changed them.
    ``index`` of ``count`` is its place in the review, which errors of more than one object name (VER-006, VER-007).
    """
    api_version = need.api_version
    if given.__class__ is dict and given.get("apiVersion") == api_version and (same := need.unchanged(given)):
        return given, same
    original = need.document
    prefix = f"conversion webhook for {kind_of(original)} returned invalid"
    one = count == 1
    thing = "object at index 0" if one else f"converted object at index {index}"
    if not isinstance(given, dict) or not given.get("kind") or not isinstance(given["kind"], str):
        fault = f"Object 'Kind' is missing in '{encode(given).decode() if isinstance(given, dict) else _json(given)}'"
        raise ConversionError(fault if one else f"{prefix} {thing}: {fault}", INVALID_OBJECT)
    if given.get("apiVersion") != api_version:
        fault = f"invalid groupVersion (expected {api_version}, received {given.get('apiVersion') or ''})"
        raise ConversionError(f"{prefix} {thing}: {fault}", INVALID_OBJECT)
    if given["kind"] != original.get("kind"):
        fault = f"invalid kind (expected {original.get('kind', '')}, received {given['kind']})"
        raise ConversionError(f"{prefix} {thing}: {fault}", INVALID_OBJECT)
    fault = _identity_fault(original, given)
    if fault:
        raise ConversionError(f"{prefix} {'object' if one else thing}: {fault}", INVALID_OBJECT)
    try:
        given["metadata"] = _restored(original, given)
    except ValueError as error:
        where = "metadata" if one else f"metadata in object at index {index}"
        raise ConversionError(f"{prefix} {where}: {error}", INVALID_OBJECT) from error
    return given, b""


_SAME = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))


def _identity_fault(original: View, given: View) -> str:
    """Return what of an object's identity the webhook changed, empty when nothing (VER-006)."""
    before, after = _map(original.get("metadata")), _map(given.get("metadata"))
    for name, shown in _SAME:
        old, new = _text(before.get(name)), _text(after.get(name))
        if old != new:
            return f"must have the same {shown}: {old} != {new}"
    return ""


def _restored(original: View, given: View) -> Document:
    """Return the original's metadata with the labels and annotations that the webhook gave (VER-007)."""
    if "metadata" not in given:
        raise ValueError("missing metadata in converted object")
    answered = given["metadata"]
    if not isinstance(answered, dict):
        raise ValueError(f"invalid metadata of type {_go_type(answered)} in converted object")  # noqa: TRY004
    known = original.get("metadata", {})
    if not isinstance(known, Mapping):
        raise ValueError(f"invalid metadata of type {_go_type(known)} in input object")  # noqa: TRY004
    metadata: Document = {name: value for name, value in known.items() if name not in _CHANGEABLE}
    for name in _CHANGEABLE:
        value = answered.get(name)
        if value is not None and (changed := _changed(name, known.get(name), value)):
            metadata[name] = changed
    return metadata


def _changed(name: str, before: Any, after: Any) -> Document:
    """Return labels or annotations as the webhook gave them, checked if they are not what they were."""
    if not isinstance(after, dict):
        raise ValueError(f"invalid metadata.{name} of type {_go_type(after)} in converted object")  # noqa: TRY004
    if before is not None and not isinstance(before, Mapping):
        raise ValueError(f"invalid metadata.{name} of type {_go_type(before)} in original object")
    for key, value in after.items():
        if not isinstance(value, str):
            raise ValueError(  # noqa: TRY004
                f"metadata.{name}[{key}] must be a string, but is {_go_type(value)} in converted object"
            )
    if after == (before or {}):
        return after
    if name == "labels":
        errors = objectmeta.label_errors(after, "metadata.labels")
    else:
        errors = objectmeta.annotation_errors(after, "metadata.annotation")  # upstream spells the path so
    if errors:
        raise ValueError(_aggregate(errors))
    return after


def _aggregate(errors: Sequence[FieldError]) -> str:
    """Return errors as Go's aggregate prints them: each once, in brackets when they are several."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _go_kind(api_version: Any, kind: Any) -> str:
    text = api_version if isinstance(api_version, str) else ""
    return f"{text if '/' in text else f'/{text}'}, Kind={kind if isinstance(kind, str) else ''}"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


_GO_TYPES = {list: "[]interface {}", str: "string", bool: "bool", int: "int64", float: "float64", type(None): "<nil>"}


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(value.__class__, "map[string]interface {}")
