"""From a decoded body to a normalised object, with what the client asked to be told about its fields (WRI-013)."""

from collections.abc import Sequence

import orjson

from apiext.catalog.served import Endpoint, ServedVersion
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode
from apiext.meta import fields, status
from apiext.meta.options import WriteOptions
from apiext.schema.budget import DEFAULTS
from apiext.verbs import identity, threads
from apiext.verbs.call import Body, Call

IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"


def mode(options: WriteOptions) -> str:
    """Return what to do about unknown fields; Warn when the client does not say (WRI-013)."""
    return options.field_validation or WARN


async def normalize_body(call: Call, body: Body, validation: str) -> Document:
    """Check kind and version of a POST or PUT body, normalise it, and report unknown and duplicate fields."""
    identity.check_type(call, body, told=validation != IGNORE)
    call.size = len(body.raw)
    try:
        document, unknown = await threads.run(call, _normalize, call, body.document)
    except ValueError as error:
        raise identity.cannot_be_handled(call, body.document, str(error)) from error
    notes = field_notes(unknown, body.duplicates)
    if notes and validation == STRICT:
        text = f"strict decoding error: {', '.join(notes)}"
        raise identity.cannot_be_handled(call, body.document, text)
    if validation == WARN:
        call.warnings.extend(notes)
    return document


def normalize_patched(call: Call, patched: Document, patch_notes: Sequence[str], validation: str) -> Document:
    """Normalise what a patch made; what is wrong with it is an error of the patch (WRI-007, WRI-013)."""
    _, kind = identity.expected_kind(call.served, call.endpoint)
    fault = identity.type_fault(patched)
    if not fault and (call.served.typed or call.endpoint.kind):
        patched["kind"] = patched.get("kind") or kind
    shown = encode(patched).decode()
    if not fault and not patched.get("kind"):
        fault = f"Object 'Kind' is missing in '{shown}'"
    if not fault and not call.served.typed and patched.get("apiVersion", "") is None:
        fault = identity.NULL_VERSION
    if not fault and call.served.typed:
        fault = identity.not_registered(call, patched)
    if fault:
        raise _bad_patch(shown, fault)
    try:
        document, unknown = _normalize(call, patched)
    except ValueError as error:
        raise _bad_patch(shown, str(error)) from error
    notes = [*patch_notes, *field_notes(unknown, ())]
    if notes and validation == STRICT:
        raise _bad_patch(shown, f"strict decoding error: {', '.join(notes)}")
    if validation == WARN:
        call.warnings.extend(note for note in notes if note not in call.warnings)
        identity.warn_of_other_version(call, document, str(document.get("apiVersion", "")))
    identity.check_name(call, document)
    return document


def field_notes(unknown: Sequence[str], duplicates: Sequence[str]) -> list[str]:
    """Return the notes in the order in which upstream lists them: duplicates, then unknown fields."""
    return [*duplicates, *(f'unknown field "{path}"' for path in unknown)]


def _normalize(call: Call, document: Document) -> tuple[Document, list[str]]:
    DEFAULTS.refill()
    found = (call.endpoint.normalize or call.served.normalize)(document)
    call.size += DEFAULTS.spent
    return found


def _bad_patch(shown: str, text: str) -> status.StatusError:
    error = fields.FieldError(fields.INVALID, "patch", f"Invalid value: {fields.go_quote(shown)}: {text}")
    cause = {"reason": error.reason, "message": error.body, "field": error.field}
    return status.StatusError(422, "Invalid", f' "" is invalid: {error}', {"causes": [cause]})


def shown_document(served: ServedVersion, endpoint: Endpoint, raw: bytes, revision: int) -> View:
    """Return a stored object as the endpoint shows it."""
    if not endpoint.name:
        document: View = orjson.loads(served.view(raw, revision))
        return document
    return endpoint.project(served.decode(raw, revision))
