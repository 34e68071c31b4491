"""ConversionReviews: encoder of the request, decoder and validation of the response.

See VER-004…007.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from apiext.catalog import limits as catalog_limits
from apiext.catalog.converted import NeedsConversion
from apiext.conversion import pieces
from apiext.conversion.pieces import Listed
from apiext.documents import limits as documents_limits
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode, json_kind
from apiext.go_types.typed import Field, Json, List, Text
from apiext.meta import objectmeta
from apiext.meta.fields import aggregate
from apiext.text.quotes import go_quote
from apiext.webhooks.reviews import STATUS, VERSIONS, decoded, review_types, typed

GROUP = "apiextensions.k8s.io"
KIND = "ConversionReview"
_CHANGEABLE = ("labels", "annotations")
_EMPTY_RESPONSE = b']},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}'


class ConversionError(Exception):
    """Objects could not be converted. The text is the message of the 500 response (VER-008).

    ``failure`` is the value of the label ``failure_type`` in metrics (VER-013). ``need`` is the requested
    conversion that failed with this error; None until the caller of the webhook assigns it.
    """

    def __init__(self, text: str, failure: str) -> None:
        super().__init__(text)
        self.failure = failure
        self.need: NeedsConversion | None = None


CALL = "conversion_webhook_call_failure"
MALFORMED = "conversion_webhook_malformed_response_failure"
PARTIAL = "conversion_webhook_partial_response_failure"
INVALID_OBJECT = "conversion_webhook_invalid_converted_object_failure"


def review_version(supported: Sequence[str]) -> str:
    """Return the first version that this server can send.

    Raise ConversionError if there is none. See VER-004.
    """
    for version in supported:
        if version in VERSIONS:
            return version
    raise ConversionError("no supported conversion review versions", CALL)


def request(version: str, uid: str, needs: Sequence[NeedsConversion]) -> bytes:
    """Return the JSON of the review that requests the conversion of several objects.

    As upstream, the review contains an empty response, since some webhooks fill it in.
    """
    content = {"uid": uid, "desiredAPIVersion": needs[0].api_version, "objects": []}
    empty = orjson.dumps({"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": content})
    texts = [need.text for need in needs]
    texts[0] = empty.removesuffix(b"]}}") + texts[0]
    texts[-1] += _EMPTY_RESPONSE
    return b",".join(texts)


def kind_of(document: View) -> str:
    """Return group, version and kind of an object as Go prints them."""
    return _go_kind(document.get("apiVersion"), document.get("kind"))


def failure_text(document: View, text: object) -> str:
    """Return the message about a failed call; ``document`` is the first object.

    The message contains the kind of this object (VER-008).
    """
    return f"conversion webhook for {kind_of(document)} failed: {text}"


def is_empty(document: View) -> bool:
    """Report whether an object has only apiVersion and kind.

    The server does not send such objects (VER-011).
    """
    return len(document) == 2 and "kind" in document and "apiVersion" in document


class ConvertedObjects(Sequence[Any]):
    """The objects of a response.

    For a split response, the last object is decoded at once, and ``listed`` has the JSON of the other objects. Each of
    these is decoded when it is used. If the complete response is decoded at once, ``listed`` is None.
    """

    __slots__ = ("_objects", "_raw", "_texts", "_whole", "listed")

    def __init__(self, raw: bytes, objects: Sequence[Any]) -> None:
        """``objects`` are the decoded objects of the response ``raw``."""
        self.listed: Listed | None = None
        self._raw = raw
        self._objects = objects
        self._texts: Sequence[str] | None = None
        self._whole: Callable[[], Sequence[Any]] = tuple

    @classmethod
    def split(cls, last: Any, listed: Listed, whole: Callable[[], Sequence[Any]]) -> "ConvertedObjects":
        """Return objects of which only the last is decoded.

        ``whole()`` decodes all, for the error of an invalid object.
        """
        made = cls(listed.raw, (last,))
        made.listed, made._whole = listed, whole
        return made

    def __len__(self) -> int:
        return len(self.listed.begins if self.listed is not None else self._objects)

    def __getitem__(self, index: Any) -> Any:
        """Return an object.

        Raise JSONDecodeError if it is invalid JSON or contains too many objects and arrays.
        """
        listed = self.listed
        if listed is None:
            return self._objects[index]
        if index == len(listed.begins) - 1:
            return self._objects[0]
        text = listed.text(index)
        if _is_crowded(text):
            # the caller then decodes the complete response, which raises the error
            raise orjson.JSONDecodeError("crowded", "", 0)
        return orjson.loads(text)

    @property
    def size(self) -> int:
        """The number of bytes of the response."""
        return len(self._raw)

    def bytes_of(self, index: int) -> int:
        """Return the number of bytes that must be decoded for an object, 0 if it is decoded already."""
        listed = self.listed
        if listed is None or index == len(listed.begins) - 1:
            return 0
        return listed.begins[index + 1] - listed.begins[index]

    def decode(self) -> None:
        """Decode all objects at once; raise ConversionError. This is slow."""
        self._objects, self.listed = self._whole(), None

    def find_texts(self) -> Sequence[str]:
        """Return the JSON of the objects up to the first invalid object. The first call is slow."""
        if self._texts is None:
            self._texts = pieces.texts_of(self._raw)
        return self._texts

    def text(self, index: int) -> str:
        """Return the JSON of an object, "" if it is unknown. The first call is slow."""
        texts = self.find_texts()
        return texts[index] if index < len(texts) else ""


def split(raw: bytes, count: int) -> tuple[bytes, Listed] | None:
    """Split a response with several objects (see pieces.split).

    Return None if it must be decoded at once.
    """
    return pieces.split(raw, count) if count > 1 else None


def listed_objects(
    version: str, uid: str, needs: Sequence[NeedsConversion], raw: bytes, parts: tuple[bytes, Listed]
) -> ConvertedObjects | None:
    """Return the objects of a split response.

    Return None if the complete response must be decoded for an error message. An invalid object raises its error when
    it is used.
    """
    short, listed = parts
    if _is_crowded(short):
        return None
    try:
        last = _objects_of(version, uid, orjson.loads(short))
    except ValueError:
        return None
    return (
        ConvertedObjects.split(last[0], listed, partial(_decoded, version, uid, needs, raw)) if len(last) == 1 else None
    )


def all_objects(version: str, uid: str, needs: Sequence[NeedsConversion], raw: bytes) -> ConvertedObjects:
    """Decode all objects of a response, without validation of the objects (VER-005).

    Raise ConversionError if the response is malformed, if it reports a failure, or if it has another number of objects
    than the request.
    """
    return ConvertedObjects(raw, _decoded(version, uid, needs, raw))


def _is_crowded(raw: bytes) -> bool:
    """Report whether JSON has too many objects and arrays to decode them at once.

    Such decoding blocks other threads.
    """
    return (
        len(raw) > documents_limits.MAX_CONTAINERS
        and raw.count(b"{") + raw.count(b"[") > documents_limits.MAX_CONTAINERS
    )


def _loaded(raw: bytes) -> Any:
    if _is_crowded(raw):
        return decoded(raw)  # raises the error about the limit
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return decoded(raw)  # slower, but raises the error with Go's message


def _decoded(version: str, uid: str, needs: Sequence[NeedsConversion], raw: bytes) -> list[Any]:
    try:
        found = _objects_of(version, uid, _loaded(raw))
    except ValueError as error:
        raise ConversionError(failure_text(needs[0].document, error), MALFORMED) from error
    if len(found) != len(needs):
        first = kind_of(needs[0].document)
        raise ConversionError(
            f"conversion webhook for {first} returned {len(found)} objects, expected {len(needs)}", PARTIAL
        )
    return found


_RESPONSE = {
    "uid": Field(Text("types.UID")),
    "convertedObjects": Field(List(Json(), "[]runtime.RawExtension")),
    "result": Field(STATUS),
}
# the result of a successful response: the usual form, and the form of Go's encoder
_SUCCESS = ({"status": "Success"}, {"metadata": {}, "status": "Success"})
_REVIEWS = review_types(KIND, "ConversionResponse", _RESPONSE)


def _plain_success(version: str, uid: str, answer: Any) -> list[Any] | None:
    """Fast path: return the objects of a response in the usual form.

    None means: use the slow path, which checks types.
    """
    if answer.__class__ is not dict or answer.get("kind") != KIND or answer.get("apiVersion") != f"{GROUP}/{version}":
        return None
    response = answer.get("response")
    if response.__class__ is not dict or response.get("uid") != uid or response.get("result") not in _SUCCESS:
        return None
    objects = response.get("convertedObjects")
    return objects if objects.__class__ is list else None


def _objects_of(version: str, uid: str, answer: Any) -> list[Any]:
    """Return the objects of a response.

    Raise ValueError with upstream's message if it is not a success.
    """
    plain = _plain_success(version, uid, answer)
    if plain is not None:
        return plain
    review = typed(answer, _REVIEWS, GROUP, version)
    if version == "v1":  # as upstream, which verifies neither kind nor uid for v1beta1
        wanted, found = f"{GROUP}/{version}, Kind={KIND}", kind_of(review)
        if found != wanted:
            raise ValueError(f"expected webhook response of {wanted}, got {found}")
    response = review.get("response")
    if response is None:
        raise ValueError("no response provided")
    if version == "v1" and (found := response.get("uid") or "") != uid:
        raise ValueError(f"expected response.uid={go_quote(uid)}, got {go_quote(found)}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        message = result.get("message")
        raise ValueError(message or f"response.result.status was '{result.get('status') or ''}', not 'Success'")
    return response.get("convertedObjects") or []


def accepted(need: NeedsConversion, answered: ConvertedObjects, given: Any, index: int) -> tuple[Document, bytes]:
    """Validate a converted object, and restore its metadata except labels and annotations.

    Return (object, JSON of the metadata); the JSON is b"" if the webhook may have changed the metadata. Raise
    ConversionError if the object is invalid. ``index`` is the position of the object in the review, -1 in a review of
    one object. Error messages contain this position (VER-006, VER-007).
    """
    api_version = need.api_version
    if given.__class__ is dict and given.get("apiVersion") == api_version and (same := need.unchanged_metadata(given)):
        return given, same
    original = need.document
    prefix = f"conversion webhook for {kind_of(original)} returned invalid"
    one = index < 0
    thing = "object at index 0" if one else f"converted object at index {index}"
    fault = _undecodable(given, answered, max(index, 0))
    if fault:
        raise ConversionError(fault if one else f"{prefix} {thing}: {fault}", INVALID_OBJECT)
    fault = _kind_fault(need, given)
    if fault:
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


def nesting_error(need: NeedsConversion, index: int) -> ConversionError:
    """Return the error about an object that is nested deeper than MAX_STORED_DEPTH.

    ``index`` is as in ``accepted``.
    """
    original = need.document
    metadata = _map(original.get("metadata"))
    name = "/".join(_text(metadata[part]) for part in ("namespace", "name") if part in metadata)
    thing = "object" if index < 0 else f"converted object at index {index}"
    prefix = f"conversion webhook for {kind_of(original)} returned invalid {thing}"
    return ConversionError(
        f"{prefix}: {name} is nested deeper than {catalog_limits.MAX_STORED_DEPTH} levels", INVALID_OBJECT
    )


def is_typed(given: View) -> bool:
    """Report whether a value has a kind and a valid apiVersion."""
    return bool(_text(given.get("kind"))) and _text(given.get("apiVersion")).count("/") < 2


def _undecodable(given: Any, answered: ConvertedObjects, index: int) -> str:
    """Return Go's error for a value that is not an object with a kind, "" for such an object.

    Upstream: unstructured.UnmarshalJSON. An invalid apiVersion gives the same error as a missing kind.
    """
    if given is None:
        return "unexpected end of JSON input"
    if not isinstance(given, dict):
        return f"json: cannot unmarshal {json_kind(given)} into Go value of type map[string]interface {{}}"
    if is_typed(given):
        return ""
    return f"Object 'Kind' is missing in '{answered.text(index) or encode(given).decode()}'"


def _kind_fault(need: NeedsConversion, given: View) -> str:
    """Return the error of a wrong version or kind, "" if there is none (VER-006)."""
    version, kind = _text(given.get("apiVersion")), _text(need.document.get("kind"))
    if version != need.api_version:
        return f"invalid groupVersion (expected {need.api_version}, received {version})"
    return "" if given["kind"] == kind else f"invalid kind (expected {kind}, received {given['kind']})"


_SAME = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))


def _identity_fault(original: View, given: View) -> str:
    """Return the error of a changed name, namespace or uid, "" if there is none (VER-006)."""
    before, after = _map(original.get("metadata")), _map(given.get("metadata"))
    for name, shown in _SAME:
        old, new = _text(before.get(name)), _text(after.get(name))
        if old != new:
            return f"must have the same {shown}: {old} != {new}"
    return ""


def _restored(original: View, given: View) -> Document:
    """Return the original metadata with the converted labels and annotations (VER-007)."""
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
    """Return the labels or annotations of the converted object.

    Validate them if the webhook has changed them.
    """
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
        errors = objectmeta.annotation_errors(after, "metadata.annotation")  # upstream's path has no final s
    if errors:
        raise ValueError(aggregate(errors))
    return after


def _go_kind(api_version: Any, kind: Any) -> str:
    text = api_version if isinstance(api_version, str) else ""
    return f"{text if '/' in text else f'/{text}'}, Kind={kind if isinstance(kind, str) else ''}"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_GO_TYPES = {list: "[]interface {}", str: "string", bool: "bool", int: "int64", float: "float64", type(None): "<nil>"}


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(value.__class__, "map[string]interface {}")
