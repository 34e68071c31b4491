"""The stored form of values that are encrypted with data keys of a KMS plug-in.

The bytes are equal to upstream's.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from apiext.kms import limits
from apiext.kms.messages import EncryptedObject
from apiext.meta import fields
from apiext.meta.syntax import dns1123_label, dns1123_subdomain

KEY, SEED = 0, 1
"""The kinds of an encrypted data key: an AES-GCM key, or a seed from which the key of each value is derived."""

# The tag of the encrypted data, which is the first field in Go's order. The bytes after this field are equal in all
# values that have the same data key.
_DATA = b"\x0a"
MALFORMED = "proto: cannot parse invalid wire-format data"


class InvalidEnvelope(ValueError):
    """The error of an invalid stored value or response of a plug-in. The text is upstream's."""


class Envelope(NamedTuple):
    """A parsed stored value.

    ``data`` is the encrypted object, ``source`` the encrypted data key, and ``kind`` the kind of this key, KEY or SEED.
    ``key_id`` is the id of the key with which the plug-in has encrypted the data key. All values with the same data key
    have the same ``digest``.
    """

    data: bytes
    kind: int
    key_id: str
    source: bytes
    annotations: Mapping[str, bytes]
    digest: bytes


def tail(kind: int, key_id: str, source: bytes, annotations: Mapping[str, bytes]) -> bytes:
    """Return the bytes that follow the encrypted data in each value with this data key."""
    message = EncryptedObject(keyID=key_id, encryptedDEKSource=source, encryptedDEKSourceType=kind)
    message.annotations.update(annotations)
    return bytes(message.SerializeToString(deterministic=True))


def digest_of(rest: bytes) -> bytes:
    """Return the digest of the bytes after the encrypted data, which identifies a data key."""
    return hashlib.sha256(rest).digest()


def packed(data: bytes, rest: bytes) -> bytes:
    """Return the stored form of encrypted data: the field of the data, then ``rest``.

    ``rest`` is the result of ``tail``.
    """
    size, head = len(data), bytearray(_DATA)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return b"".join((head, data, rest))


def split(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the encrypted data and the unparsed tail of a stored value.

    Return None if the data is not the first field, or empty, or truncated.
    """
    if raw[:1] != _DATA:
        return None
    size, shift, at = 0, 0, 1
    for byte in raw[1:6]:
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (raw[at : at + size], raw[at + size :]) if 0 < size <= len(raw) - at else None
    return None


def unpacked(raw: bytes) -> Envelope:
    """Parse and validate a stored value; raise InvalidEnvelope."""
    try:
        message = EncryptedObject.FromString(raw)
    except DecodeError as error:
        raise InvalidEnvelope(MALFORMED) from error
    found = Envelope(
        message.encryptedData,
        message.encryptedDEKSourceType,
        message.keyID,
        message.encryptedDEKSource,
        dict(message.annotations),
        b"",
    )
    if not found.data and found.kind in (KEY, SEED):
        raise InvalidEnvelope("encrypted data is empty")
    validate(found.kind, found.key_id, found.source, found.annotations)
    return found._replace(digest=digest_of(tail(found.kind, found.key_id, found.source, found.annotations)))


def validate(kind: int, key_id: str, source: bytes, annotations: Mapping[str, bytes]) -> None:
    """Validate an encrypted data key, the id of the plug-in's key, and the annotations.

    Raise InvalidEnvelope.
    """
    if kind not in (KEY, SEED):
        raise InvalidEnvelope(f"unknown encryptedDEKSourceType: {kind}")
    why = "failed to validate encrypted DEK source: encrypted DEK source is"
    if not source:
        raise InvalidEnvelope(f"{why} empty")
    if len(source) > limits.KMS_SOURCE:
        raise InvalidEnvelope(f"{why} {len(source)} bytes, which exceeds the max size of {limits.KMS_SOURCE}")
    if fault := key_id_fault(key_id)[1]:
        raise InvalidEnvelope(f"failed to validate key id: {fault}")
    if faults := list(dict.fromkeys(_annotation_faults(annotations))):
        raise InvalidEnvelope(f"failed to validate annotations: {fields.aggregate(faults)}")


def key_id_fault(key_id: str) -> tuple[str, str]:
    """Return upstream's error code and error text for the id of a key.

    Both are empty if the id is valid.
    """
    size = len(key_id.encode())
    if not size:
        return "empty", "keyID is empty"
    if size > limits.KMS_KEY_ID:
        return "too_long", f"keyID is {size} bytes, which exceeds the max size of {limits.KMS_KEY_ID}"
    return "", ""


def _annotation_faults(annotations: Mapping[str, bytes]) -> list[str]:
    faults = [str(fault) for name in sorted(annotations) for fault in _domain_faults(name)]
    size = sum(len(name.encode()) + len(value) for name, value in annotations.items())
    if size > limits.KMS_ANNOTATIONS:
        faults.append(f"total size of annotations is {size}, which exceeds the max size of {limits.KMS_ANNOTATIONS}")
    return faults


def _domain_faults(name: str) -> list[Any]:
    """Return the validation errors of the name of an annotation.

    The name must be a fully qualified domain name.
    """
    if not name:
        return [fields.required("annotations")]
    name = name.removesuffix(".")
    if faults := dns1123_subdomain(name):
        return [fields.invalid("annotations", name, ",".join(faults))]
    labels = name.split(".")
    if len(labels) < 2:
        why = "should be a domain with at least two segments separated by dots"
        return [fields.invalid("annotations", name, why)]
    labels_and_errors = ((label, dns1123_label(label)) for label in labels)
    return [fields.invalid("annotations", label, ",".join(faults)) for label, faults in labels_and_errors if faults]
