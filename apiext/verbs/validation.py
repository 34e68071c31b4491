"""Validation of the object of a write: kind, metadata, values, and the rules of its resource."""

from apiext.documents.document import Document, View
from apiext.meta import fields, objectmeta, status
from apiext.verbs import identity
from apiext.verbs.call import Call

DEFINITIONS = "apiextensions.k8s.io"


def judge(call: Call, new: Document, old: View | None) -> None:
    """Validate type, metadata, values and rules of an object; warnings go to the call."""
    served, is_status = call.served, call.endpoint.name == "status"
    validation, typed = served.validation, served.model.typed
    errors = identity.kind_errors(call, new)
    # upstream: of an object of another kind neither metadata nor values are judged, but the rest is
    if errors:
        errors += validation.structure(new, old, call.endpoint.name)
        if old is not None:  # upstream: the metadata of a change is judged for all resources before the kind judges
            changed = objectmeta.validate_update(new["metadata"], old["metadata"], served.names.namespaced, ())
            errors = changed + errors
    else:
        errors = _metadata_and_values(call, new, old)
    broken, notes = validation.rules(new, old, errors)
    errors += broken
    if notes:
        call.warn(notes)
    if typed and served.names.group != DEFINITIONS:  # upstream: other built-in kinds report equal errors once
        errors = list(dict.fromkeys(errors))
    if errors:
        raise status.invalid(identity.own_kind(served, new), str(new["metadata"].get("name", "")), errors)
    if not typed:  # upstream: only custom objects are told about their finalizers
        call.warnings.extend(objectmeta.warnings(new["metadata"], old["metadata"] if old is not None else None))
    warn = validation.warnings_status if is_status else validation.warnings
    call.warnings.extend(warn(new, old))


def _metadata_and_values(call: Call, new: View, old: View | None) -> list[fields.FieldError]:
    validation, namespaced, endpoint = call.served.validation, call.served.names.namespaced, call.endpoint
    metadata, names = new["metadata"], validation.names
    if old is None and not endpoint.judges:  # upstream: they are judged for all resources once the kind is content
        return validation.validate(new, None) or objectmeta.validate(metadata, namespaced, names)
    if old is None:
        errors = objectmeta.validate(metadata, namespaced, names)
        if validation.metadata is not None:
            errors += validation.metadata(metadata)
    else:
        errors = objectmeta.validate_update(
            metadata, old["metadata"], namespaced, endpoint.judges, names, validation.metadata
        )
    values = endpoint.validate or (validation.validate_status if endpoint.name == "status" else validation.validate)
    return [*errors, *values(new, old)]
