"""Validation of secrets, config maps and service accounts.

Rows of go_types/types/*.yaml name these functions.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from apiext.catalog import limits
from apiext.documents.document import Document, View
from apiext.documents.errors import DecodeError
from apiext.documents.json_errors import check_depth, syntax_error
from apiext.meta import syntax
from apiext.meta.fields import Errors, FieldError, forbidden, invalid, item, required, too_long

IMMUTABLE = "field is immutable when `immutable` is set"
_ACCOUNT = "kubernetes.io/service-account.name"
_REDACTED = "<secret contents redacted>"
# first byte of a JSON value → its kind in Go's error, empty if Go decodes the value into a map
_JSON_KINDS = {b"{": "", b"n": "", b"[": "array", b'"': "string", b"t": "bool", b"f": "bool"}
_JSON_NUMBERS = re.compile(rb"-?[0-9][0-9.eE+-]*+")


def _keys(document: View, part: str) -> Iterator[FieldError]:
    for key in sorted(document.get(part) or ()):
        yield from (invalid(item(part, key), key, fault) for fault in syntax.config_key(key))


def _size(value: str) -> int:
    """Return the number of bytes that a base64 string encodes."""
    return len(value) // 4 * 3 - value[-2:].count("=")


def _frozen(new: View, old: View | None, parts: Iterable[str]) -> list[FieldError]:
    """Return an error for each change that ``immutable`` forbids."""
    if old is None or not old.get("immutable"):
        return []
    errors = [] if new.get("immutable") else [forbidden("immutable", IMMUTABLE)]
    return errors + [forbidden(part, IMMUTABLE) for part in parts if (new.get(part) or {}) != (old.get(part) or {})]


def finalizer_errors(metadata: View) -> list[FieldError]:
    """Return an error for each finalizer that has no domain and is not a standard finalizer."""
    names = metadata.get("finalizers") or ()
    bare = ((index, name) for index, name in enumerate(names) if "/" not in name and name not in STANDARD_FINALIZERS)
    return Errors(invalid(item("metadata.finalizers", index), name, UNQUALIFIED) for index, name in bare)


STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


# --- secrets ---


def default_secret(document: Document) -> None:
    """Encode the write-only stringData and merge it into data."""
    texts = document.pop("stringData", None)
    if texts:
        encoded = {
            key: base64.b64encode(value.encode("utf-8", "surrogatepass")).decode() for key, value in texts.items()
        }
        document["data"] = {**(document.get("data") or {}), **encoded}


def validate_secret(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a secret; ``old`` is None on create."""
    data: Mapping[str, str] = new.get("data") or {}
    errors = Errors()
    kind, before = new.get("type", ""), (old or {}).get("type", "")
    if old is not None and kind != before:
        errors.append(invalid("type", kind, "field is immutable"))
    errors += _frozen(new, old, ("data",))
    errors += _keys(new, "data")
    if sum(map(_size, data.values())) > limits.MAX_SECRET:
        errors.append(too_long("data", limits.MAX_SECRET))
    check = _SECRETS.get(kind)
    return errors + check(new, data) if check is not None else errors


def _account(new: View, data: Mapping[str, str]) -> list[FieldError]:
    annotations = (new.get("metadata") or {}).get("annotations") or {}
    return [] if annotations.get(_ACCOUNT) else [required(f"metadata.annotations[{_ACCOUNT}]")]


def _json(key: str) -> Callable[[View, Mapping[str, str]], list[FieldError]]:
    def check(new: View, data: Mapping[str, str]) -> list[FieldError]:
        path = item("data", key)
        if key not in data:
            return [required(path)]
        fault = _no_object(base64.b64decode(data[key] or ""))
        return [invalid(path, _REDACTED, fault)] if fault is not None else []

    return check


def _no_object(raw: bytes) -> str | None:
    """Return Go's error for text that Go cannot decode into a map.

    Return None for a JSON object or null. A number that exceeds float64 is an error, too. The memory of the check does
    not grow with the nesting.
    """
    try:
        check_depth(raw, limits.MAX_TEXT_DEPTH)
    except DecodeError as error:
        return str(error)
    fault = syntax_error(raw)
    if fault is not None:
        return fault
    kind = _JSON_KINDS.get(raw.lstrip()[:1], "number")
    if kind:
        return f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    for outside in raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]:
        for number in _JSON_NUMBERS.findall(outside):
            if math.isinf(float(number)):
                return f"json: cannot unmarshal number {number.decode()} into Go value of type float64"
    return None


def _any_of(*keys: str) -> Callable[[View, Mapping[str, str]], list[FieldError]]:
    return lambda new, data: [] if any(key in data for key in keys) else [required(item("data", key)) for key in keys]


def _all_of(*keys: str, filled: bool = False) -> Callable[[View, Mapping[str, str]], list[FieldError]]:
    def there(data: Mapping[str, str], key: str) -> bool:
        return bool(data.get(key)) if filled else key in data

    return lambda new, data: [required(item("data", key)) for key in keys if not there(data, key)]


_SECRETS: Mapping[str, Callable[[View, Mapping[str, str]], list[FieldError]]] = {
    "kubernetes.io/service-account-token": _account,
    "kubernetes.io/dockercfg": _json(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _any_of("username", "password"),
    "kubernetes.io/ssh-auth": _all_of("ssh-privatekey", filled=True),
    "kubernetes.io/tls": _all_of("tls.crt", "tls.key"),
}
"""Type of a secret → the function that validates its data."""


# --- config maps ---


def validate_config_map(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a config map; ``old`` is None on create."""
    texts, binary = new.get("data") or {}, new.get("binaryData") or {}
    errors = Errors(_frozen(new, old, ("data", "binaryData")))
    errors += _keys(new, "data")
    errors += (
        invalid(item("data", key), key, "duplicate of key present in binaryData")
        for key in sorted(texts.keys() & binary)
    )
    errors += _keys(new, "binaryData")
    size = sum(len(value.encode("utf-8", "surrogatepass")) for value in texts.values()) + sum(
        map(_size, binary.values())
    )
    if size > limits.MAX_SECRET:
        # Upstream prints the path of a whole object as [].
        errors.append(too_long("[]", limits.MAX_SECRET))  # upstream: ConfigMaps have the path of the whole object
    return errors


# --- service accounts ---


def prepare_service_account(new: Document, old: View | None) -> Document:
    """Keep only the name in each reference to a secret.

    The secrets are in the namespace of the account.
    """
    if new.get("secrets"):
        new["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in new["secrets"]]
    return new


def service_account_warnings(new: View, old: View | None) -> list[str]:
    """Return the warning about a deprecated annotation.

    There is no warning if the stored object already has this annotation.
    """
    if not _is_marked(new) or (old is not None and _is_marked(old)):
        return []
    instead = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    return [f"metadata.annotations[{_MOUNTABLE}]: {instead}"]


def _is_marked(account: View) -> bool:
    return _MOUNTABLE in (account["metadata"].get("annotations") or {})


_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
