"""The ``kms`` providers of an EncryptionConfiguration.

Validation and error texts are those of kube-apiserver.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiext.kms.provider import Provider, service
from apiext.meta import fields
from apiext.meta.fields import FieldError
from apiext.meta.time import parse_duration
from apiext.text.quotes import go_quote

V1, V2 = "v1", "v2"
NO_V1 = (
    "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set "
    "--feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
)
_REASON = "this server has only KMSv2"
_TIMEOUT = "3s"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}", re.DOTALL)
_PORT = re.compile(r":[0-9]*")
_NO_HOST = re.compile(r"[^A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]")


def validate(found: Mapping[str, Any], path: str, names: Sequence[str]) -> Iterator[FieldError]:
    """Yield the validation errors of a provider; ``names`` are the names of earlier providers."""
    version, name = _version(found), found.get("name") or ""
    field_path = f"{path}.name"
    if not name:
        yield fields.required(field_path, "name is a mandatory field for a provider")
    if version != V1 and ":" in name:
        yield fields.invalid(field_path, name, f"invalid KMS provider name {name}, must not contain ':'")
    if version != V1 and name in names:
        yield fields.invalid(field_path, name, f"duplicate KMS provider name {name}, names must be unique")
    timeout = found.get("timeout") or _TIMEOUT
    if parse_duration(timeout) <= 0:
        yield fields.invalid(f"{path}.timeout", timeout, "timeout should be a positive value")
    yield from _endpoint_errors(found.get("endpoint") or "", f"{path}.endpoint")
    size = found.get("cachesize")
    if version != V1 and size is not None:
        yield fields.invalid(f"{path}.cachesize", size, "cachesize is not supported in v2")
    if version == V1 and size == 0:
        yield fields.invalid(f"{path}.cachesize", size, "cachesize should be a positive value, or negative to disable")
    if version not in (V1, V2):
        why = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
        yield fields.invalid(f"{path}.apiVersion", version, why)


def _endpoint_errors(endpoint: str, path: str) -> Iterator[FieldError]:
    if not endpoint:
        yield fields.invalid(path, "", "endpoint is a mandatory field for a kms")
        return
    scheme, fault = _parsed(endpoint)
    if fault:
        why = f"invalid endpoint for kms provider, error: parse {go_quote(endpoint)}: {fault}"
        yield fields.invalid(path, endpoint, why)
    elif scheme != "unix":
        why = f"unsupported scheme {go_quote(scheme)} for KMS provider, only unix is supported"
        yield fields.invalid(path, endpoint, why)


def _parsed(text: str) -> tuple[str, str]:
    """Return the scheme of a URL, and the error text of Go's url.Parse ("" for a valid URL)."""
    if _CONTROL.search(text):
        return "", "net/url: invalid control character in URL"
    if text.startswith(":"):
        return "", "missing protocol scheme"
    found = _SCHEME.match(text)
    scheme, rest = (found[1].lower(), text[found.end() :]) if found else ("", text)
    rest = rest.partition("#")[0].partition("?")[0]
    if not rest.startswith("/"):
        if scheme:
            return scheme, ""
        first = rest.partition("/")[0]
        return ("", "first path segment in URL cannot contain colon") if ":" in first else ("", _escapes(rest))
    if scheme and rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        host = host.rpartition("@")[2]
        if (colon := host.rfind(":")) >= 0 and _PORT.fullmatch(host[colon:]) is None:
            return scheme, f"invalid port {go_quote(host[colon:])} after host"
        if odd := _NO_HOST.search(host):
            return scheme, f"invalid character {go_quote(odd[0])} in host name"
        rest = slash + path
    return scheme, _escapes(rest)


def _escapes(path: str) -> str:
    bad = _BAD_ESCAPE.search(path)
    return f"invalid URL escape {go_quote(bad[0])}" if bad else ""


def _version(found: Mapping[str, Any]) -> str:
    return found.get("apiVersion") or V1


def go_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a provider for error texts, in the order of Go's struct."""
    size = found.get("cachesize")
    return {
        "APIVersion": _version(found),
        "Name": found.get("name") or "",
        "CacheSize": 1000 if size is None and _version(found) == V1 else size,
        "Endpoint": found.get("endpoint") or "",
        "Timeout": found.get("timeout") or _TIMEOUT,
    }


def provider(found: Mapping[str, Any]) -> Provider:
    """Return the KMS provider of a validated configuration; raise ValueError for KMS v1."""
    if _version(found) == V1:
        raise ValueError(f"{NO_V1} ({_REASON})")
    return service(found["name"], found["endpoint"], parse_duration(found.get("timeout") or _TIMEOUT))
