"""Change makers: each kind of write as a function from what is shown to what is wanted (design.md §1)."""

from collections.abc import Callable, Mapping

from apiext.documents import json_patch, merge_patch, strategic_merge
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import DecodeError, decode_json
from apiext.meta import status
from apiext.verbs.call import Call
from apiext.verbs.decoding import normalize_patched

Change = Callable[[View], Document]
"""shown object → wanted object, normalised; raises StatusError."""

PatchMaker = Callable[[Call, bytes, str], Change]


def replace(document: Document) -> Change:
    """Return the change of a PUT: whatever is there, this is wanted."""
    return lambda _: clone(document)


def json_patch_change(call: Call, raw: bytes, validation: str) -> Change:
    """Return the change of an RFC 6902 patch (WRI-007)."""
    operations, duplicates = _decode(raw)
    if not isinstance(operations, list):
        raise _wrong_root(operations, "[]handlers.jsonPatchOp")
    notes = [f"json patch {note}" for note in (*duplicates, *_checked(operations))]

    def change(shown: View) -> Document:
        try:
            patched = json_patch.apply(shown, operations)
        except json_patch.PatchInvalid as error:
            raise status.unprocessable("the server rejected our request due to an error in our request") from error
        return normalize_patched(call, patched, notes, validation)

    return change


def _checked(operations: list[object]) -> list[str]:
    """Return notes about unknown members; 400 and 413 for what is no list of operations or is too long (WRI-007)."""
    try:
        return json_patch.check(operations)
    except json_patch.PatchTooBig as error:
        raise status.StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {error}") from error
    except json_patch.PatchMalformed as error:
        raise status.bad_request(f"error decoding patch: {error}") from error


def merge_patch_change(call: Call, raw: bytes, validation: str) -> Change:
    """Return the change of an RFC 7386 patch (WRI-007)."""
    patch, duplicates = _decode(raw)
    if patch is None:
        raise status.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise _wrong_root(patch, "map[string]interface {}")

    def change(shown: View) -> Document:
        patched = merge_patch.apply(shown, patch)
        return normalize_patched(call, patched, duplicates, validation)

    return change


def strategic_change(call: Call, raw: bytes, validation: str) -> Change:
    """Return the change of a strategic merge patch, which only typed resources have (KUB-003)."""
    patch, duplicates = _decode(raw)
    if not isinstance(patch, dict):
        raise _wrong_root(patch, "map[string]interface {}")
    lists = {**MERGE_KEYS, **call.served.merge_keys}

    def change(shown: View) -> Document:
        try:
            patched = strategic_merge.apply(shown, patch, lists)
        except strategic_merge.StrategicPatchError as error:
            raise status.bad_request(str(error)) from error
        return normalize_patched(call, patched, duplicates, validation)

    return change


MERGE_KEYS = {"metadata.finalizers": "", "metadata.ownerReferences": "uid"}  # struct tags of ObjectMeta
STRATEGIC = "application/strategic-merge-patch+json"

PATCHES: Mapping[str, PatchMaker] = {
    "application/json-patch+json": json_patch_change,
    "application/merge-patch+json": merge_patch_change,
}

_GO_KINDS = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}


def _decode(raw: bytes) -> tuple[object, list[str]]:
    try:
        return decode_json(raw)
    except DecodeError as error:
        raise status.bad_request(f"error decoding patch: {error}") from error


def _wrong_root(value: object, wanted: str) -> status.StatusError:
    kind = _GO_KINDS.get(type(value), "null")
    return status.bad_request(f"error decoding patch: json: cannot unmarshal {kind} into Go value of type {wanted}")
