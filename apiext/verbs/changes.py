"""Create the change of a PUT or a patch: a function from current to requested object."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from apiext import limits as server_limits
from apiext.documents import json_patch, merge_patch, strategic_merge
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import DecodeError, decode_json, decode_overflowing
from apiext.documents.errors import BoundExceeded, OverflowingNumber
from apiext.documents.member_order import in_order_of_members
from apiext.meta import status
from apiext.meta.fields import go_print
from apiext.verbs import patch_texts
from apiext.verbs.call import Call
from apiext.verbs.decoding import IGNORE, no_object, normalize_patched, restore_patched

Change = Callable[[View], Document]
"""Object as the endpoint returns it → requested object, normalized; raises StatusError."""

PatchMaker = Callable[[Call, bytes, str], Change]


def replace(call: Call, document: Document) -> Change:
    """Return the change of a PUT: it returns the requested object for any current object."""
    if call.endpoint.model.typed:
        return lambda _: clone(document)
    # a copy of metadata is enough, since a write of a custom object changes nothing else in the document
    return lambda _: {**document, "metadata": {**document["metadata"]}}


class MalformedPatch(status.StatusError):
    """The 400 of a patch that is not JSON, raised before the object is read.

    Upstream: validateAndTranscodePatch.
    """

    def __init__(self) -> None:
        super().__init__(400, "BadRequest", "invalid JSON patch")


def from_patch(call: Call, raw: bytes, media_type: str, validation: str) -> Change:
    """Return the change of a patch of one of the media types of ``PATCHES``.

    Raise MalformedPatch for invalid JSON. The returned change raises any other error, since upstream reads the object
    before it decodes the patch.
    """
    try:
        return PATCHES[media_type](call, raw, validation)
    except MalformedPatch:
        raise
    except status.StatusError as error:
        fault = error

    def refused(_: View) -> Document:
        raise fault

    return refused


def json_patch_change(call: Call, raw: bytes, validation: str) -> Change:
    """Return the change of an RFC 6902 patch (WRI-007)."""
    lenient = validation == IGNORE
    prefix = "" if lenient else _DECODING

    def listed(document: object) -> list[Any]:
        if document is not None and not isinstance(document, list):
            raise _wrong_root(document, "jsonpatch.Patch" if lenient else "[]handlers.jsonPatchOp", prefix)
        return document or []

    found, duplicates = _decode(
        raw,
        prefix,
        lambda document: _checked(listed(document), prefix),
        "Go value" if lenient else "Go struct field jsonPatchOp.value",
    )
    operations = listed(found)
    notes = [f"json patch {note}" for note in _in_go_order(raw, duplicates, _checked(operations, prefix))]
    if json_patch.copies(operations):
        call.size = max(call.size, server_limits.WORK_INLINE)

    def change(shown: View) -> Document:
        try:
            patched = json_patch.apply(shown, operations)
        except json_patch.ResultIsArray as error:
            raise no_object(patch_texts.patched(call, shown, raw, operations)) from error
        except json_patch.PatchInvalid as error:
            raise status.unprocessable("the server rejected our request due to an error in our request") from error
        return normalize_patched(
            call, patched, notes, validation, lambda: patch_texts.patched(call, shown, raw, operations)
        )

    return change


def _in_go_order(raw: bytes, duplicates: list[str], unknown: list[str]) -> list[str]:
    """Return the notes (texts of warnings or errors) in the order of the patch text, as Go does.

    Drop notes about duplicate fields inside unknown fields.
    """
    if not duplicates or not unknown:
        return [*duplicates, *unknown]
    places = [note.removeprefix("unknown ")[:-1] for note in unknown]
    lost = tuple(f"duplicate {place}{end}" for place in places for end in '".[')
    return in_order_of_members(raw, [*(note for note in duplicates if not note.startswith(lost)), *unknown])


def _checked(operations: list[object], prefix: str) -> list[str]:
    """Return a note for each unknown field of an operation.

    Raise a 400 for a malformed operation, and a 413 for too many operations (WRI-007).
    """
    try:
        return json_patch.check(operations, strictly=bool(prefix))
    except json_patch.PatchTooBig as error:
        raise status.StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {error}") from error
    except json_patch.PatchMalformed as error:
        raise status.bad_request(f"{prefix}{error}") from error


def merge_patch_change(call: Call, raw: bytes, validation: str) -> Change:
    """Return the change of an RFC 7386 patch (WRI-007)."""
    beyond = False
    # With Ignore, a number over the range of float64 is no error here, and the error of an array has another text.
    if validation == IGNORE:  # upstream: with Ignore, only the library that merges the patch decodes it
        patch, duplicates, beyond = _unread(raw)
        if isinstance(patch, list):
            raise no_object(patch_texts.listed(raw, patch))
    else:
        patch, duplicates = _decode(raw, _DECODING, partial(_check_object, prefix=_DECODING))
        _check_object(patch, _DECODING)
    if not isinstance(patch, dict):
        raise status.bad_request("Invalid JSON Patch")

    def change(shown: View) -> Document:
        aside = _aside(call, shown, patch)
        rest = _without(shown, aside) if aside else shown
        patched = merge_patch.apply(rest, patch, shared=call.exact)
        return normalize_patched(
            call, patched, duplicates, validation, lambda: patch_texts.merged(call, shown, raw, patch), aside,
            beyond=beyond,
        )  # fmt: skip

    return change


def _unread(raw: bytes) -> tuple[object, list[str], bool]:
    """Return (decoded patch, notes about duplicates, whether a number exceeds float64)."""
    try:
        return *decode_json(raw), False
    except OverflowingNumber:
        return *decode_overflowing(raw), True
    except BoundExceeded as error:
        raise status.bad_request(f"{_DECODING}{error}") from error
    except DecodeError as error:
        raise MalformedPatch from error


def _aside(call: Call, shown: View, patch: View) -> Document:
    """Return the metadata that a patch does not change.

    The caller need not normalize it again. This is all metadata if the patch has none and the object is known to be
    normalized (``call.exact``), else only managedFields. The result is empty for a built-in kind, and for a patch of
    managedFields.
    """
    given = patch.get("metadata", {})
    if call.endpoint.model.typed or not isinstance(given, dict) or "managedFields" in given:
        return {}
    metadata = shown["metadata"]
    if call.exact and "metadata" not in patch:
        return {**metadata}
    return {"managedFields": metadata["managedFields"]} if "managedFields" in metadata else {}


def _without(shown: View, aside: View) -> View:
    """Return the object without these metadata fields.

    If these are all fields of the metadata, return the object without metadata.
    """
    rest = {**shown}
    metadata = rest.pop("metadata")
    if len(aside) < len(metadata):
        rest["metadata"] = {name: item for name, item in metadata.items() if name not in aside}
    return rest


def strategic_change(call: Call, raw: bytes, validation: str) -> Change:
    """Return the change of a strategic merge patch, which only built-in kinds support (KUB-003)."""
    given, duplicates = _decode(raw, "", partial(_check_object, prefix=""))
    _check_object(given, "")
    patch = given if isinstance(given, dict) else {}
    lists = {**MERGE_KEYS, **call.served.model.merge_keys}
    has_whole = _with_whole_numbers(patch) is not patch

    def change(shown: View) -> Document:
        try:
            patched = strategic_merge.apply(shown, patch, lists)
        except strategic_merge.StrategicPatchError as error:
            raise status.bad_request(error.text_with(go_print)) from error

        def quoted() -> str:
            return go_print(strategic_merge.remainder(shown, patch, lists))

        whole = _with_whole_numbers(patched) if has_whole else patched
        return restore_patched(call, whole, duplicates, validation, quoted, patched)

    return change


# path of a list → its merge key ("" if its items are strings), as in the struct tags of ObjectMeta
MERGE_KEYS = {"metadata.finalizers": "", "metadata.ownerReferences": "uid"}

PATCHES: Mapping[str, PatchMaker] = {
    "application/json-patch+json": json_patch_change,
    "application/merge-patch+json": merge_patch_change,
    "application/strategic-merge-patch+json": strategic_change,
}

_DECODING = "error decoding patch: "
_GO_KINDS = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}


def _decode(
    raw: bytes, prefix: str, check: Callable[[object], object], within: str = "Go value"
) -> tuple[object, list[str]]:
    """Return a decoded patch and notes about duplicates.

    ``within`` is the name of the target in Go's error about a number. ``check`` raises the errors that upstream reports
    before an error about a number over the range of float64.
    """
    try:
        return decode_json(raw)
    except OverflowingNumber as error:
        check(decode_overflowing(raw)[0])
        raise status.bad_request(f"{prefix}{error}".replace("Go value", within)) from error
    except BoundExceeded as error:
        raise status.bad_request(f"{prefix}{error}") from error
    except DecodeError as error:
        raise MalformedPatch from error


def _check_object(patch: object, prefix: str) -> None:
    if patch is not None and not isinstance(patch, dict):
        raise _wrong_root(patch, "map[string]interface {}", prefix)


def _wrong_root(value: object, wanted: str, prefix: str) -> status.StatusError:
    kind = _GO_KINDS.get(type(value), "null")
    return status.bad_request(f"{prefix}json: cannot unmarshal {kind} into Go value of type {wanted}")


def _with_whole_numbers(value: Any) -> Any:
    """Return a document with integral floats as integers; the same document if it has none.

    Upstream converts such floats where a field needs an integer, and prints them as integers in other fields.
    """
    if value.__class__ is float:
        return int(value) if abs(value) < _INT64 and value.is_integer() else value
    if value.__class__ is dict:
        found = {name: _with_whole_numbers(item) for name, item in value.items()}
        return found if any(found[name] is not item for name, item in value.items()) else value
    if value.__class__ is list:
        items = [_with_whole_numbers(item) for item in value]
        return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
    return value


_INT64 = 2.0**63
