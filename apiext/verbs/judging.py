"""What is wrong with an object that a write wants: kind, metadata, values, and what its resource itself says."""

from apiext.documents.document import Document, View
from apiext.meta import fields, objectmeta, status
from apiext.verbs import identity
from apiext.verbs.call import Call

DEFINITIONS = "apiextensions.k8s.io"


def judge(call: Call, new: Document, old: View | None) -> None:
    """Validate: type, metadata, and what the resource itself says; warnings go to the call."""
    served = call.served
    errors = identity.kind_errors(call, new)
    # upstream: of an object of another kind neither metadata nor values are judged, but the rest is
    if errors:
        errors += served.structure(new, old, call.endpoint.name)
        if old is not None:  # upstream: the metadata of a change is judged for all resources before the kind judges
            changed = objectmeta.validate_update(new["metadata"], old["metadata"], served.namespaced, ())
            errors = changed + errors
    else:
        errors = _values(call, new, old)
    broken, notes = served.rules(new, old, errors)
    errors += broken
    if notes:
        call.warn(notes)
    if served.typed and served.group != DEFINITIONS:  # upstream: other built-in kinds report equal errors once
        errors = list(dict.fromkeys(errors))
    if errors:
        raise status.invalid(identity.own_kind(served, new), str(new["metadata"].get("name", "")), errors)
    if not served.typed:  # upstream: only custom objects are told about their finalizers
        call.warnings.extend(objectmeta.warnings(new["metadata"], old["metadata"] if old is not None else None))
    warn = served.warnings_status if call.endpoint.name == "status" else served.warnings
    call.warnings.extend(warn(new, old))


def _values(call: Call, new: View, old: View | None) -> list[fields.FieldError]:
    served, endpoint, own = call.served, call.endpoint, call.served.judge_metadata
    metadata = new["metadata"]
    if old is None and not endpoint.judges:  # upstream: they are judged for all resources once the kind is content
        return served.validate(new, None) or objectmeta.validate(metadata, served.namespaced, served.name_messages)
    if old is None:
        errors = objectmeta.validate(metadata, served.namespaced, served.name_messages)
        if own is not None:
            errors += own(metadata)
    else:
        errors = objectmeta.validate_update(
            metadata, old["metadata"], served.namespaced, endpoint.judges, served.name_messages, own
        )
    judge = served.validate_status if endpoint.name == "status" else served.validate
    return [*errors, *judge(new, old)]
