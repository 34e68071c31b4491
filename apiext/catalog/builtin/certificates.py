"""Validation of certificate requests and trust bundles.

Upstream: apis/certificates/validation.
"""

import base64
import binascii
from collections.abc import Iterator

from apiext.documents.document import Document, View, clone
from apiext.documents.equality import same
from apiext.meta.fields import Errors, FieldError, duplicate, forbidden, invalid, item, not_supported, required
from apiext.meta.syntax import dns1123_label, dns1123_subdomain

_DECISIONS = ("Approved", "Denied")
_FINAL = (*_DECISIONS, "Failed")
_STATUSES = ("False", "True", "Unknown")
_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_LEAST_SECONDS = 600
_LEGACY = "kubernetes.io/legacy-unknown"


# --- requests ---


def validate_request(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a certificate request; ``old`` is None for a create.

    An update may not change the certificate, or a condition Approved or Denied. It may not remove a condition Failed.
    """
    return Errors([*_request(new), *([] if old is None else _kept(new, old))])


def validate_request_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a write of the status.

    Such a write may set the certificate, but may not change a condition Approved or Denied.
    """
    return Errors([*_request(new), *_kept(new, old or {}, certificate=True)])


def validate_approval(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an approval or a denial."""
    return Errors([*_request(new), *_kept(new, old or {}, decides=True)])


def prepare_approval(new: Document, old: View) -> Document:
    """Return the new object with the stored spec and status, but with its own conditions."""
    status = clone(old.get("status") or {})
    status.pop("conditions", None)
    if (conditions := (new.get("status") or {}).get("conditions")) is not None:
        status["conditions"] = conditions
    return {**new, "spec": clone(old["spec"]), "status": status}


def _request(new: View) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    request = spec.get("request") or ""
    if not _is_request(request):
        yield invalid("spec.request", spec.get("request"), "PEM block type must be CERTIFICATE REQUEST")
    usages = spec.get("usages") or ()
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield not_supported(item("spec.usages", index), usage, _USAGES)
    for index, usage in enumerate(usages):
        if usage in usages[:index]:
            yield duplicate(item("spec.usages", index), usage)
    signer = spec.get("signerName") or ""
    if signer == _LEGACY:
        yield invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        yield from signer_errors(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _LEAST_SECONDS:
        text = f"may not specify a duration less than {_LEAST_SECONDS} seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, text)
    yield from _conditions(_of(new))


def _is_request(encoded: str) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE REQUEST-----" in base64.b64decode(encoded)
    except binascii.Error:
        return False


def signer_errors(signer: str, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the name of a signer, such as ``example.com/name``."""
    if not signer:
        yield required(path)
        return
    domain, *rest = signer.split("/")
    if len(rest) != 1:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, signer, text)
        return
    labels = domain.split(".")
    for label in labels:
        for fault in dns1123_label(label):
            yield invalid(path, domain, f'validating label "{label}": {fault}')
    if len(labels) < 2:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    for label in rest[0].split("."):
        for fault in dns1123_subdomain(label):
            yield invalid(path, rest[0], f'validating label "{label}": {fault}')


def _of(document: View) -> list[View]:
    return list((document.get("status") or {}).get("conditions") or ())


def _conditions(conditions: list[View]) -> Iterator[FieldError]:
    path = "status.conditions"
    seen: list[str] = []
    for index, one in enumerate(conditions):
        kind, value = one.get("type") or "", one.get("status") or ""
        supported_values = ("True",) if kind in _FINAL else _STATUSES
        if not kind:
            yield required(f"{item(path, index)}.type")
        if not value:
            yield required(f"{item(path, index)}.status")
        elif value not in supported_values:
            yield not_supported(f"{item(path, index)}.status", value, supported_values)
        if kind in _DECISIONS and any(other in seen for other in _DECISIONS if other != kind):
            yield invalid(path, kind, "Approved and Denied conditions are mutually exclusive")
        if kind in seen:
            yield duplicate(f"{item(path, index)}.type", kind)
        seen.append(kind)


def _kept(new: View, old: View, *, decides: bool = False, certificate: bool = False) -> Iterator[FieldError]:
    """Yield the errors of changes that an update may not make.

    ``decides`` is true for the endpoint ``approval``: only it may add or change a condition Approved or Denied.
    ``certificate`` is true for the endpoint ``status``: only it may set the certificate, if there is none yet.
    """
    path = "status.conditions"
    for kind in _FINAL:
        now, before = ([one for one in _of(document) if one.get("type") == kind] for document in (new, old))
        if len(now) < len(before):
            yield forbidden(path, f'updates may not remove a condition of type "{kind}"')
        elif decides or kind not in _DECISIONS:
            continue
        elif len(now) > len(before):
            yield forbidden(path, f'updates may not add a condition of type "{kind}"')
        elif not same(now, before):
            yield forbidden(path, f'updates may not modify a condition of type "{kind}"')
    made, was = ((document.get("status") or {}).get("certificate") or "" for document in (new, old))
    if made != was and not certificate:
        yield forbidden("status.certificate", "updates may not set certificate content")
    elif made != was and was:
        yield forbidden("status.certificate", "updates may not modify existing certificate content")


# --- trust bundles ---


def validate_trust_bundle(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a trust bundle.

    If a bundle has the signer ``a.example/b``, its name must begin with ``a.example:b:``.
    """
    errors = Errors()
    spec, name = new.get("spec") or {}, (new.get("metadata") or {}).get("name") or ""
    signer = spec.get("signerName") or ""
    prefix = f"{signer.replace('/', ':')}:" if signer else ""
    if not name.startswith(prefix):
        text = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        errors.append(invalid("metadata.name", name, text))
    elif not signer and ":" in name:
        text = 'ClusterTrustBundle without signer name must not have ":" in its name'
        errors.append(invalid("metadata.name", name, text))
    else:
        errors += (invalid("metadata.name", name, fault) for fault in dns1123_subdomain(name.removeprefix(prefix)))
    if not spec.get("trustBundle"):
        errors.append(required("spec.trustBundle"))
    return errors
