"""Validate the object of a write: kind, metadata, values, and the rules of its resource."""

from apiext.documents.document import Document, View
from apiext.meta import fields, objectmeta, status
from apiext.verbs import identity
from apiext.verbs.call import Call

DEFINITIONS = "apiextensions.k8s.io"


def validate(call: Call, new: Document, old: View | None) -> None:
    """Raise a 422 for an invalid type, metadata or value, or a failed rule.

    Add warnings to the call.
    """
    served, is_status = call.served, call.endpoint.name == "status"
    validation, typed = served.validation, served.model.typed
    errors = identity.kind_errors(call, new)
    # upstream: an object of another kind is not validated by its schema
    # Only list types and embedded resources (``structure``), the metadata of an update, and the rules are validated.
    if errors:
        errors += validation.structure(new, old, call.endpoint.name)
        # upstream: metadata of an update is validated for all resources, before the validation of the kind
        if old is not None:
            changed = objectmeta.validate_update(new["metadata"], old["metadata"], served.names.namespaced, ())
            errors = changed + errors
    else:
        errors = _metadata_and_values(call, new, old)
    broken, notes = validation.rules(new, old, errors)
    errors += broken
    if notes:
        call.warn(notes)
    if typed and served.names.group != DEFINITIONS:  # upstream: all other built-in kinds report equal errors once
        errors = list(dict.fromkeys(errors))
    if errors:
        raise status.invalid(identity.own_kind(served, new), str(new["metadata"].get("name", "")), errors)
    if not typed:  # upstream: only custom objects get warnings about finalizers
        call.warnings.extend(objectmeta.warnings(new["metadata"], old["metadata"] if old is not None else None))
    warn = validation.warnings_status if is_status else validation.warnings
    call.warnings.extend(warn(new, old))


def _metadata_and_values(call: Call, new: View, old: View | None) -> list[fields.FieldError]:
    validation, namespaced, endpoint = call.served.validation, call.served.names.namespaced, call.endpoint
    metadata, names = new["metadata"], validation.names
    # For endpoints without metadata_checks, a create validates metadata last, and only if all other fields are valid.
    # upstream: the metadata of a new object is validated last, and only if all other fields are valid
    if old is None and not endpoint.metadata_checks:
        return validation.validate(new, None) or objectmeta.validate(metadata, namespaced, names)
    if old is None:
        errors = objectmeta.validate(metadata, namespaced, names)
        if validation.metadata is not None:
            errors += validation.metadata(metadata)
    else:
        errors = objectmeta.validate_update(
            metadata, old["metadata"], namespaced, endpoint.metadata_checks, names, validation.metadata
        )
    values = endpoint.validate or (validation.validate_status if endpoint.name == "status" else validation.validate)
    return [*errors, *values(new, old)]
