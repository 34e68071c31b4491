"""Parser of EncryptionConfiguration files.

Validation and error texts are those of kube-apiserver.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from apiext.documents.errors import DecodeError
from apiext.documents.yaml_text import decode_yaml
from apiext.kms.provider import Provider as Service
from apiext.meta import fields
from apiext.meta.fields import FieldError
from apiext.meta.names import GroupResource
from apiext.meta.time import parse_duration
from apiext.storage import kms_config
from apiext.storage.ciphers import (
    AES_CBC,
    AES_GCM,
    IDENTITY,
    SECRETBOX,
    CipherEncryptions,
    MaskedError,
    Provider,
    Rule,
    group_resource,
)
from apiext.storage.encryption import Encryptions, Secret
from apiext.storage.envelopes import KMS

_GROUP_VERSION = "apiserver.config.k8s.io/v1"
_KIND = "EncryptionConfiguration"
_KINDS = {
    ("v1", "EncryptionConfig"),  # the earlier name of the kind
    (_GROUP_VERSION, _KIND),
}
_OTHER_KINDS = frozenset(
    ("AdmissionConfiguration", "AuthenticationConfiguration", "AuthorizationConfiguration", "TracingConfiguration")
)
_SIZES: Mapping[str, Sequence[int]] = {AES_GCM: (16, 24, 32), AES_CBC: (16, 24, 32), SECRETBOX: (32,)}
_PROVIDER_ORDER = (AES_GCM, AES_CBC, SECRETBOX, IDENTITY, KMS)
_GO_NAMES = {AES_GCM: "AESGCM", AES_CBC: "AESCBC", SECRETBOX: "Secretbox", IDENTITY: "Identity", KMS: "KMS"}
_NO_REST = frozenset(("apiserveripinfo", "serviceipallocations", "servicenodeportallocations"))
_REDACTED = "REDACTED"
_ANY = GroupResource("*", "*")

# Go struct → field → (Go type, Go struct of the value or of its items, "" if none)
_STRUCTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    _KIND: {
        "apiVersion": ("string", ""), "kind": ("string", ""),
        "resources": ("[]v1.ResourceConfiguration", "ResourceConfiguration"),
    },
    "ResourceConfiguration": {
        "resources": ("[]string", ""), "providers": ("[]v1.ProviderConfiguration", "ProviderConfiguration"),
    },
    "ProviderConfiguration": {
        AES_GCM: ("v1.AESConfiguration", "AESConfiguration"), AES_CBC: ("v1.AESConfiguration", "AESConfiguration"),
        SECRETBOX: ("v1.SecretboxConfiguration", "SecretboxConfiguration"),
        IDENTITY: ("v1.IdentityConfiguration", "IdentityConfiguration"),
        KMS: ("v1.KMSConfiguration", "KMSConfiguration"),
    },
    "AESConfiguration": {"keys": ("[]v1.Key", "Key")},
    "SecretboxConfiguration": {"keys": ("[]v1.Key", "Key")},
    "IdentityConfiguration": {},
    "KMSConfiguration": {
        "apiVersion": ("string", ""), "name": ("string", ""), "cachesize": ("int32", ""), "endpoint": ("string", ""),
        "timeout": ("v1.Duration", ""),
    },
    "Key": {"name": ("string", ""), "secret": ("string", "")},
}  # fmt: skip
_NAMES = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


class ConfigurationError(ValueError):
    """The error of an invalid configuration; its text is the reason."""


class Loaded(Struct, frozen=True):
    """The configuration in a file, the hash of the file, and the KMS providers to start."""

    encryptions: Encryptions
    hash: str
    services: tuple[Service, ...] = ()


def load(path: str) -> Loaded:
    """Return the configuration in a file; raise ConfigurationError."""
    return loaded(read(path), path)


def loaded(raw: bytes, path: str) -> Loaded:
    """Return the configuration in the bytes of a file; raise ConfigurationError."""
    rules = parse(raw, path)
    try:
        services = [it.service for rule in rules for it in rule.providers if it.service is not None]
        return Loaded(CipherEncryptions(rules), hash_of(raw), tuple(services))
    except MaskedError as error:
        raise ConfigurationError(f"error while building transformers: {error}") from error


def read(path: str) -> bytes:
    """Return the content of a file; raise ConfigurationError."""
    named, loading = f'encryption provider configuration file "{path}"', "error while parsing file: error while loading"
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        why = f"open {path}: {(error.strerror or str(error)).lower()}"
        raise ConfigurationError(f"{loading} file: error reading {named}: {why}") from error
    if not raw:
        raise ConfigurationError(f"{loading} file: {named} is empty")
    return raw


def hash_of(raw: bytes) -> str:
    """Return the hash of a file's content, for metrics and to detect changes."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def parse(raw: bytes, path: str) -> tuple[Rule, ...]:
    """Parse the rules of a file; raise ConfigurationError. Only error texts use ``path``."""
    try:
        document = _document(raw)
    except ValueError as error:
        named = f'error decoding encryption provider configuration file "{path}"'
        raise ConfigurationError(f"error while parsing file: {named}: {error}") from error
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) not in _KINDS:
        raise ConfigurationError(f"error while parsing file: got unexpected config type: {version}, Kind={kind}")
    if errors := list(_errors(document)):
        raise ConfigurationError(f"error while parsing file: {fields.aggregate(errors)}")
    return tuple(_rules(document))


# --- decoding ---


def _document(raw: bytes) -> Mapping[str, Any]:
    document, doubles = decode_yaml(raw)
    if document is not None and not isinstance(document, dict):
        raise DecodeError(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {_NAMES[type(document)]} into Go "
            r'value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; '
            r'Kind string "json:\"kind,omitempty\"" }'
        )
    found: Mapping[str, Any] = document or {}
    for field in ("kind", "apiVersion"):
        if not isinstance(value := found.get(field) or "", str):
            what = f"json: cannot unmarshal {_NAMES[type(value)]} into Go struct field .{field} of type string"
            raise DecodeError(f"couldn't get version/kind; json parse error: {what}")
    for field, go_name in (("kind", "Kind"), ("apiVersion", "apiVersion")):
        if not found.get(field):  # the text omits the file, since it contains keys; upstream's text contains the file
            raise DecodeError(f"Object '{go_name}' is missing")
    version, kind = found["apiVersion"], found["kind"]
    if (version, kind) not in _KINDS:
        if version != _GROUP_VERSION or kind not in _OTHER_KINDS:
            where = 'in scheme "pkg/runtime/scheme.go:111"'
            raise DecodeError(f'no kind "{kind}" is registered for version "{version}" {where}')
        return found
    strict = [*doubles, *_unknown(found, _KIND, "", "")]
    if strict:
        raise DecodeError(f"strict decoding error: {', '.join(strict)}")
    return found


def _unknown(value: Mapping[str, Any], struct: str, path: str, go: str) -> Iterator[str]:
    """Yield an error for each unknown field.

    Raise DecodeError for a field of a wrong type, and ValueError for an invalid duration.
    """
    known = _STRUCTS[struct]
    for name in sorted(value):
        field_path = fields.child(path, name)
        if name not in known:
            contains_secret = (
                struct == "Key" and value[name] is None
            )  # in ``{secret:VALUE}``, without a blank, YAML reads ``secret:VALUE`` as the name of a field
            yield f'unknown field "{fields.child(path, _REDACTED) if contains_secret else field_path}"'
            continue
        kind, inside = known[name]
        go_path = f"{go}.{name}" if go else name
        items = enumerate(_of_type(value[name], kind, struct, go_path)) if kind.startswith("[]") else ()
        for number, item in items:
            one = _of_type(item, kind[2:], struct, go_path)
            if inside and one is not None:
                yield from _unknown(one, inside, fields.item(field_path, number), go_path)
        if not kind.startswith("[]"):
            one = _of_type(value[name], kind, struct, go_path)
            if inside and one is not None:
                yield from _unknown(one, inside, field_path, go_path)


def _of_type(value: Any, kind: str, struct: str, field_path: str) -> Any:
    if value is None:
        return [] if kind.startswith("[]") else None
    if kind == "v1.Duration":
        return _duration(value, struct, field_path)
    if kind == "int32":
        return _int32(value, struct, field_path)
    wanted = list if kind.startswith("[]") else str if kind == "string" else dict
    if not isinstance(value, wanted):
        found = _NAMES[type(value)]
        raise DecodeError(f"json: cannot unmarshal {found} into Go struct field {struct}.{field_path} of type {kind}")
    return value


def _duration(value: Any, struct: str, field_path: str) -> str:
    if not isinstance(value, str):
        found = _NAMES[type(value)]
        raise DecodeError(f"json: cannot unmarshal {found} into Go struct field {struct}.{field_path} of type string")
    parse_duration(value)
    return value


def _int32(value: Any, struct: str, field_path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        found = f"number {value}" if isinstance(value, int | float) and value is not True else _NAMES[type(value)]
        raise DecodeError(f"json: cannot unmarshal {found} into Go struct field {struct}.{field_path} of type int32")
    return value


# --- validation ---


def _errors(document: Mapping[str, Any]) -> Iterator[FieldError]:
    rules = document.get("resources") or []
    if not rules:
        yield fields.required("resources", "at least one resources is required")
    names: list[str] = []
    for number, rule in enumerate(rules):
        yield from _rule_errors(rule or {}, f"resources[{number}]", names)


def _rule_errors(rule: Mapping[str, Any], path: str, names: list[str]) -> Iterator[FieldError]:
    resources, providers = _texts(rule), rule.get("providers") or []
    field_path = f"{path}.resources"
    if not resources:
        yield fields.required(field_path, f"at least one {field_path} is required")
    yield from _overlaps(resources, field_path)
    for number, name in enumerate(resources):
        if why := _misnamed(name):
            yield fields.invalid(f"{field_path}[{number}]", name, why)
    field_path = f"{path}.providers"
    if not providers:
        yield fields.required(field_path, f"at least one {field_path} is required")
    for number, provider in enumerate(providers):
        yield from _provider_errors(provider or {}, f"{field_path}[{number}]", names)


def _texts(rule: Mapping[str, Any]) -> list[str]:
    return [name or "" for name in rule.get("resources") or []]


def _overlaps(names: Sequence[str], path: str) -> Iterator[FieldError]:
    found = [group_resource(name) for name in names]
    pairs = [(one, other) for i, one in enumerate(found) for j, other in enumerate(found) if i != j]
    if len(set(found)) < len(found):
        yield fields.invalid(path, list(names), "the same resource cannot be specified multiple times")
    # as upstream, which does not count the first pair of equal names as an overlap
    same = next((at for at, (one, other) in enumerate(pairs) if one == other), len(pairs))
    if any(_masks(one, other) for at, (one, other) in enumerate(pairs) if at != same):
        yield fields.invalid(
            path,
            list(names),
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they "
            "will be masked",
        )


def _masks(one: GroupResource, other: GroupResource) -> bool:
    return one == _ANY or (one.group == other.group and "*" in (one.resource, other.resource))


def _misnamed(name: str) -> str:
    found = group_resource(name)
    if name.lower() != name:
        return "resource name should not contain capital letters"
    if name == "*":
        return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    if name in _NO_REST:
        return "resources which do not have REST API/s cannot be encrypted"
    if found.group == "events.k8s.io":
        return (
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. "
            "Use 'events' instead in the config file"
        )
    if found.group == "extensions":
        return "'extensions' group has been removed and cannot be used for encryption"
    if found.group == "*" and found.resource != "*":
        return "encrypting the same resource across groups is not supported"
    return ""


def _provider_errors(provider: Mapping[str, Any], path: str, names: list[str]) -> Iterator[FieldError]:
    kinds = [kind for kind in _PROVIDER_ORDER if provider.get(kind) is not None]
    if not kinds:
        why = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        yield _provider_error(provider, path, why)
    if len(kinds) > 1:
        why = "more than one provider specified in a single element, should split into different list elements"
        yield _provider_error(provider, path, why)
    if KMS in kinds:
        yield from kms_config.validate(provider[KMS], f"{path}.kms", names)
        names.append(provider[KMS].get("name") or "")
    elif kinds and kinds[0] in _SIZES:
        yield from _key_errors(provider[kinds[0]], f"{path}.{kinds[0]}.keys", _SIZES[kinds[0]])


def _provider_error(provider: Mapping[str, Any], path: str, why: str) -> FieldError:
    """Return the error of a provider.

    The text contains the fields of the provider in the order of Go's struct, without secrets.
    """
    redacted = orjson.dumps({name: _redacted(provider.get(kind), kind) for kind, name in _GO_NAMES.items()}).decode()
    return FieldError(fields.INVALID, path, f"Invalid value: {redacted}: {why}")


def _redacted(value: Mapping[str, Any] | None, kind: str) -> Any:
    if value is not None and kind == KMS:
        return kms_config.go_fields(value)
    if value is None or kind not in _SIZES:
        return None if value is None else {}
    return {"Keys": [{"Name": (key or {}).get("name", ""), "Secret": _REDACTED} for key in value.get("keys") or []]}


def _key_errors(provider: Mapping[str, Any], path: str, sizes: Sequence[int]) -> Iterator[FieldError]:
    keys = provider.get("keys") or []
    if not keys:
        yield fields.required(path, "at least one keys is required")
    for number, key in enumerate(keys):
        field_path = f"{path}[{number}]"
        if not (key or {}).get("name"):
            yield fields.required(f"{field_path}.name", "name is a mandatory field for a key")
        if not (key or {}).get("secret"):
            yield fields.required(f"{field_path}.secret", "secret is a mandatory field for a key")
            continue
        try:
            size = len(_secret(key["secret"]))
        except ValueError:
            yield fields.invalid(f"{field_path}.secret", _REDACTED, "secrets must be base64 encoded")
            continue
        if size not in sizes:
            wanted = " ".join(map(str, sizes))
            why = f"secret is not of the expected length, got {size}, expected one of [{wanted}]"
            yield fields.invalid(f"{field_path}.secret", _REDACTED, why)


def _secret(text: str) -> bytes:
    """Decode the base64 of a secret. Ignore line ends, as Go does."""
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


# --- building ---


def _rules(document: Mapping[str, Any]) -> Iterator[Rule]:
    for rule in document["resources"]:
        yield Rule(tuple(_texts(rule)), tuple(map(_provider, rule["providers"])))


def _provider(provider: Mapping[str, Any]) -> Provider:
    kind = next(kind for kind in _PROVIDER_ORDER if provider.get(kind) is not None)
    if kind == KMS:
        try:
            return Provider(kind, service=kms_config.provider(provider[KMS]))
        except ValueError as error:
            raise ConfigurationError(f"error while building transformers: {error}") from error
    if kind == IDENTITY:
        return Provider(kind)
    keys = (Secret(kind, key["name"], _secret(key["secret"])) for key in provider[kind]["keys"])
    return Provider(kind, tuple(keys))
