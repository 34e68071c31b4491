"""Validation of token requests.

Upstream: apis/authentication/validation.
"""

from collections.abc import Iterator, Mapping, Sequence

from apiext.documents.document import View
from apiext.meta import syntax
from apiext.meta.fields import Errors, FieldError, invalid, item, not_supported

_LEAST_SECONDS, _MOST_SECONDS = 600, 2**32
_SECONDS, _ATTESTATIONS = "spec.expirationSeconds", "spec.attestations"
_GROUPS = "admissionReviewAPIGroups"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def token_request_errors(spec: View) -> list[FieldError]:
    """Return the validation errors of the spec of a token request, after its defaults are set."""
    seconds, audiences, attestations = spec["expirationSeconds"], spec["audiences"], spec.get("attestations")
    errors = Errors()
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        bound = "less than 10 minutes" if seconds < _LEAST_SECONDS else "larger than 2^32 seconds"
        errors.append(invalid(_SECONDS, seconds, f"may not specify a duration {bound}"))
    if names_webhook(spec.get("boundObjectRef") or {}):
        if len(audiences) != 1:
            errors.append(invalid("spec.audiences", audiences, "must be length 1 when bound to a webhook config"))
        errors += _attestation_errors(attestations)
    elif attestations:
        text = "attestations may only be specified with a webhook bound object reference"
        return [invalid(_ATTESTATIONS, attestations, text)]
    return errors


def names_webhook(reference: View) -> bool:
    """Return whether a reference is to a configuration of webhooks."""
    return reference.get("kind") in _WEBHOOKS and reference.get("apiVersion") == "admissionregistration.k8s.io/v1"


def _attestation_errors(attestations: Mapping[str, Sequence[str]] | None) -> Iterator[FieldError]:
    """Yield the validation errors of the attestations of a token for webhooks."""
    if attestations is None or len(attestations) != 1:
        text = f"webhook bound requests require exactly one {_GROUPS} attestation"
        yield invalid(_ATTESTATIONS, attestations, text)
        return
    [(key, values)] = attestations.items()
    path = item(_ATTESTATIONS, key)
    if key != _GROUPS:
        yield not_supported(path, key, (_GROUPS,))
    elif values is None or len(values) != 1:
        yield invalid(path, values, "must specify a single value")
    elif not values[0]:
        yield invalid(item(path, 0), "", "may not be an empty string")
    elif values[0] != "*":
        faults = syntax.dns1123_subdomain(values[0])
        yield from (invalid(item(path, 0), values[0], f"must specify a valid API Group: {fault}") for fault in faults)
