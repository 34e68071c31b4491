"""Normalize a decoded body, and report its unknown and duplicate fields as requested.

See WRI-013. A note is the text about an unknown or duplicate field. In the mode Strict, notes become an error; in the
mode Warn, warnings.
"""

from collections.abc import Callable, Sequence
from typing import Any

from apiext.documents.document import Document, View
from apiext.documents.encoding import Nulled, decode_json, decode_nulled, decode_overflowing, has_overflow, resolved
from apiext.documents.errors import MAX_NOTES, DecodeError
from apiext.documents.go_json import in_order
from apiext.documents.json_errors import as_written
from apiext.documents.member_order import in_order_of_members
from apiext.meta import fields, status
from apiext.meta.options import WriteOptions
from apiext.schema.budget import DEFAULTS
from apiext.text.quotes import go_quote
from apiext.verbs import identity, threads
from apiext.verbs.call import Body, Call

EMPTY: View = {}
IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"
_YAML = "yaml: unmarshal errors:"
_YAML_NOTES = frozenset((_YAML, f"error converting YAML to JSON: {_YAML}"))


def mode(options: WriteOptions) -> str:
    """Return the mode for unknown fields; the default is Warn (WRI-013)."""
    return options.field_validation or WARN


async def normalize_body(call: Call, body: Body, validation: str) -> Document:
    """Check the kind and version of a POST or PUT body, and normalize it.

    Also report unknown and duplicate fields. Raise a 400 for a body that is invalid, or in the mode Strict for such
    fields.
    """
    identity.check_type(call, body, warn, reports=validation != IGNORE, strict=validation == STRICT)
    call.size = len(body.raw)
    try:
        document, unknown = await threads.run(call, _normalize_body, call, body)
    except ValueError as error:
        text = str(error) if body.media_type == identity.YAML or not _typed(call) else as_written(body.raw, str(error))
        raise identity.cannot_be_handled(call, body.document, text) from error
    notes = unknown_notes(call, unknown) if unknown else []
    if body.duplicates:
        notes = await threads.run(call, _with_duplicates, call, body, unknown, notes)
    if notes and validation == STRICT:
        raise identity.strict_error(call, body.document, notes)
    if notes and validation == WARN:
        warn(call, notes)
    return document


def _with_duplicates(call: Call, body: Body, unknown: Sequence[str], notes: list[str]) -> list[str]:
    """Return the notes about a body that has duplicate fields."""
    if not _typed(call):
        return [*body.duplicates, *notes]
    # Duplicate fields inside the fields of ``places`` are not reported.
    # upstream: Go types do not search unknown fields, nor fields with a decoder of their own
    places = [(path, '".[') for path in unknown]
    places += [(path, ".[") for path in call.served.model.custom_decoded(body.document)]
    lost = tuple(f"duplicate field {go_quote(path)[:-1]}{end}" for path, ends in places for end in ends)
    found = [*(note for note in body.duplicates if not note.startswith(lost)), *notes]
    return in_order_of_members(body.raw, found) if body.media_type != identity.YAML and notes else found


def _typed(call: Call) -> bool:
    """Return whether upstream decodes a body into a Go type."""
    return call.endpoint.model.typed


def _normalize_body(call: Call, body: Body) -> tuple[Document, list[str]]:
    """Return the normalized body and its unknown paths.

    Raise DecodeError for a value that does not fit its type, or for a number over the range of float64.
    """
    # Go decodes all values of a duplicate field, one after the other.
    # upstream: a null does not change a field that cannot be null
    # So a body with duplicate fields and a null is decoded by ``_with_nulled``.
    nulled = bool(body.duplicates) and body.media_type != identity.YAML and _typed(call) and b"null" in body.raw
    document, unknown = _normalize(call, _with_nulled(body) if nulled else _in_go_order(call, body))
    if nulled:
        document = resolved(document)
    if body.beyond and has_overflow(document):
        raise DecodeError(body.beyond)
    return document, unknown


def _with_nulled(body: Body) -> Document:
    """Decode a body with duplicate fields.

    A Nulled stands for a null after an earlier value of the same field. Metadata has no Nulled: fields in _NEVER_NULL
    keep the earlier value, other fields become null.
    """
    document: Document = decode_nulled(body.raw)
    metadata = document.get("metadata")
    if metadata is not None:
        document["metadata"] = _resolved_metadata(metadata.before if metadata.__class__ is Nulled else metadata)
    return {**document, "apiVersion": body.document["apiVersion"], "kind": body.document["kind"]}


def _resolved_metadata(metadata: Any) -> Any:
    if metadata.__class__ is not dict:
        return metadata
    maps = {name: metadata[name] for name in _MAPS_OF_METADATA if name in metadata}
    return {**resolved(metadata, _NEVER_NULL), **resolved(maps)}


_MAPS_OF_METADATA = ("labels", "annotations")
_NEVER_NULL = frozenset((
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
    "apiVersion", "kind", "manager", "operation", "fieldsType", "subresource",
))  # fmt: skip
"""Fields of metadata, owner references and managedFields entries that are not pointers, lists or maps in Go."""


def _in_go_order(call: Call, body: Body) -> Document:
    """Return a body in upstream's decoding order: YAML for a Go type is decoded as sorted JSON."""
    if body.media_type != identity.YAML or not _typed(call):
        return body.document
    document: Document = in_order(body.document)
    return document


def warn(call: Call, notes: Sequence[str]) -> None:
    """Add notes to the warnings of the response.

    A note about YAML becomes one warning for each line. See WRI-013.
    """
    call.warn(line for note in notes for line in _lines(note))


def _lines(note: str) -> list[str]:
    head, *lines = note.split("\n  ")
    return lines if head in _YAML_NOTES else [note]


def normalize_patched(
    call: Call,
    patched: Document,
    patch_notes: Sequence[str],
    validation: str,
    quoted: Callable[[], str],
    aside: View = EMPTY,
    *,
    beyond: bool = False,
) -> Document:
    """Normalize the result of a patch; its errors are errors of the patch (WRI-007, WRI-013).

    ``quoted()`` returns the text of the result for an error. ``aside`` has the fields of metadata which ``patched``
    lacks, already normalized. ``beyond`` is true if the patch has numbers over the range of float64.
    """
    if not identity.has_usual_type(call, patched):
        _settle_type(call, patched, quoted)
        if call.served.model.typed:
            if not patched.get("apiVersion"):
                raise _without_fields(call, patched, patch_notes, validation, quoted)
            patched["apiVersion"] = call.endpoint.model.api_version
    try:
        if beyond and not _typed(call):  # upstream: the whole text is decoded before any field is validated
            decode_json(quoted().encode(errors="replace"))
        document, unknown = _normalize(call, patched)
        if beyond and has_overflow(document):
            decode_json(quoted().encode(errors="replace"))
    except ValueError as error:
        text = quoted()
        raise _bad_patch(text, _first_error(call, patched, text, str(error), beyond=beyond)) from error
    if aside:
        document["metadata"] = {**document.get("metadata", EMPTY), **aside}
    if patch_notes or unknown:
        _report(call, [*patch_notes, *_notes_of_text(call, unknown, quoted)], validation, quoted)
    if validation == WARN:
        call.warnings += identity.unknown_in_other_version(call, document, str(document.get("apiVersion", "")))
    identity.settle_names(call, document)
    return document


def _first_error(call: Call, patched: View, text: str, found: str, *, beyond: bool) -> str:
    """Return the error of a patch: for a Go type the first in the result's text, else ``found``.

    The apiVersion and kind are those of ``patched``.
    """
    if not _typed(call):
        return found
    raw = text.encode(errors="replace")
    try:
        document, _ = decode_overflowing(raw) if beyond else decode_json(raw)
        _normalize(call, {**document, **_type_of(patched)})
    except ValueError as error:
        return as_written(raw, str(error))
    return found


def _settle_type(call: Call, patched: Document, quoted: Callable[[], str]) -> None:
    """Check apiVersion and kind of the result of a patch.

    For a built-in kind or a Scale, set a missing kind. For a Scale, also complete the apiVersion.
    """
    model = call.endpoint.model
    api_version, kind = model.api_version, model.kind
    _, fault = identity.read_type(patched.items())
    if fault:  # upstream: fields on the path to a change are sorted, and the first error is reported
        # The object itself is on this path, so its fields are read again in sorted order.
        _, fault = identity.read_type(sorted(patched.items()))
    if not fault and model.typed:
        patched["kind"] = patched.get("kind") or kind
        if call.endpoint.partial:
            patched["apiVersion"] = identity.full_version(patched.get("apiVersion") or "", api_version)
    if not fault and not patched.get("kind"):
        fault = f"Object 'Kind' is missing in '{quoted()}'"
    if not fault and not call.served.model.typed and patched.get("apiVersion", "") is None:
        fault = identity.NULL_VERSION
    if not fault and call.served.model.typed:
        fault = identity.not_registered(call, patched, internal=not call.endpoint.partial)
    if fault:
        raise _bad_patch(quoted(), fault)


def _without_fields(
    call: Call, patched: View, patch_notes: Sequence[str], validation: str, quoted: Callable[[], str]
) -> status.StatusError:
    """Return the error for an object of a Go type that a patch left without an apiVersion.

    Upstream decodes such an object as the internal type, which has no JSON fields, so that the object has no name.
    """
    unknown = [name for name in patched if name not in ("apiVersion", "kind")]
    _report(call, [*patch_notes, *_notes_of_text(call, unknown, quoted)], validation, quoted)
    return identity.nameless(call)


def restore_patched(
    call: Call,
    patched: Document,
    patch_notes: Sequence[str],
    validation: str,
    quoted: Callable[[], str],
    with_floats: Document,
) -> Document:
    """Normalize the result of a strategic merge patch, as ``normalize_patched`` does.

    ``with_floats`` is the same result, but floats such as 1.0 are not converted to integers; it is used for error
    texts. As upstream, the result is converted to the Go type without JSON text, whatever its apiVersion and kind are.
    """
    own = {name: with_floats.get(name) for name in ("apiVersion", "kind")}
    wrong = next((text for text in own.values() if text is not None and text.__class__ is not str), None)
    try:
        if wrong is not None:
            raise DecodeError().misfit(wrong, "string", "string")
        patched["apiVersion"], patched["kind"] = call.endpoint.model.api_version, call.endpoint.model.kind
        document, unknown = _normalize(call, patched)
    except DecodeError as error:
        fault = error if with_floats is patched else _float_error(call, error, {**with_floats, **_type_of(patched)})
        raise _bad_patch(quoted(), fault.restored or str(fault)) from error
    # The paths of unknown fields are not escaped here.
    # upstream: errors of a strategic merge patch show them without escapes
    unknown_fields = [f'unknown field "{path}"' for path in sorted(getattr(path, "restored", path) for path in unknown)]
    _report(call, [*patch_notes, *unknown_fields], validation, quoted)
    identity.settle_names(call, document)
    return document


def _type_of(document: View) -> Document:
    return {name: document[name] for name in ("apiVersion", "kind") if name in document}


def _float_error(call: Call, fault: DecodeError, with_floats: Document) -> DecodeError:
    """Return the same error from ``with_floats`` if there is one, else ``fault``."""
    try:
        _normalize(call, with_floats)
    except DecodeError as error:
        if str(error) == str(fault):
            return error
    return fault


def no_object(quoted: str) -> status.StatusError:
    """Return the error of a patch whose result is a list."""
    return _bad_patch(quoted, identity.no_object([]))


def _report(call: Call, notes: Sequence[str], validation: str, quoted: Callable[[], str]) -> None:
    if notes and validation == STRICT:
        raise _bad_patch(quoted(), f"strict decoding error: {', '.join(notes)}")
    if validation == WARN:
        warn(call, notes)


def unknown_notes(call: Call, unknown: Sequence[str]) -> list[str]:
    """Return notes about unknown fields.

    As upstream, notes about Go types are escaped, and there are at most MAX_NOTES of them. Other notes are neither
    escaped nor limited.
    """
    if _typed(call):
        return [f"unknown field {go_quote(path)}" for path in unknown[:MAX_NOTES]]
    return [f'unknown field "{path}"' for path in unknown]


def _notes_of_text(call: Call, unknown: Sequence[str], quoted: Callable[[], str]) -> list[str]:
    """Return notes about the result of a patch; for a Go type in the order of the encoded text."""
    if len(unknown) < 2 or not _typed(call):
        return unknown_notes(call, unknown)
    notes = [f"unknown field {go_quote(path)}" for path in unknown]
    return in_order_of_members(quoted().encode(errors="replace"), notes)[:MAX_NOTES]


def _normalize(call: Call, document: Document) -> tuple[Document, list[str]]:
    DEFAULTS.refill()
    found = call.endpoint.model.normalize(document)
    call.size += DEFAULTS.spent
    return found


def _bad_patch(shown: str, text: str) -> status.StatusError:
    error = fields.FieldError(fields.INVALID, "patch", f"Invalid value: {go_quote(shown)}: {text}")
    cause = {"reason": error.reason, "message": error.body, "field": error.field}
    return status.StatusError(422, "Invalid", f' "" is invalid: {error}', {"causes": [cause]})
