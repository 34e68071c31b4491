"""Target of a webhook, parsed from a clientConfig: host, port, path and CA bundle (VER-009)."""

import base64
import binascii
from collections.abc import Mapping
from posixpath import normpath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from apiext.webhooks import hosts
from apiext.webhooks.errors import BadTarget

DEFAULT_PORT = 443


class Target(Struct, frozen=True):
    """The target of POST requests.

    - ``service``: ``name.namespace`` if the clientConfig has a service; a Resolver may map the service to an address.
    - ``host``: the DNS name in its ASCII form (IDNA), or an address. A name without an ASCII form stays unchanged.
    - ``server_name``: the name that the certificate of the server must have.
    - ``authority``: ``host`` and the port, for headers. ``shown`` is the form of host and port in errors.
    - ``plain``: true for a URL without TLS; only a kubeconfig can have such a URL.
    """

    host: str
    port: int
    authority: str
    path: str
    server_name: str
    ca: bytes = b""
    service: str = ""
    plain: bool = False
    shown: str = ""

    def __hash__(self) -> int:
        # each call of a webhook computes the hash, so only three fields are hashed
        return hash((self.host, self.port, self.path))

    @property
    def url(self) -> str:
        """The URL in error messages, without a query."""
        return f"http{'' if self.plain else 's'}://{self.shown or self.authority}{self.path}"


def target_of(config: Mapping[str, Any]) -> Target:
    """Return the target of a v1 clientConfig ({url | service, caBundle}); raises BadTarget."""
    ca = _bundle(config.get("caBundle"))
    service = config.get("service")
    if service:
        return _of_service(service, ca)
    url = config.get("url")
    if not url:
        raise BadTarget("webhook configuration must have either service or URL", 500)
    return _of_url(str(url), ca)


def target_at(url: str, ca: bytes, server_name: str = "") -> Target:
    """Return the target of a kubeconfig's server, which may be an http URL; raises BadTarget."""
    if url.startswith("http://"):
        found = _of_url(f"https://{url.removeprefix('http://')}", b"")
        port = found.port if ":" in found.authority.rpartition("]")[2] else 80
        return replace(found, port=port, plain=True)
    found = _of_url(url if "://" in url else f"https://{url}", ca)
    return replace(found, server_name=server_name or found.server_name)


def _bundle(value: object) -> bytes:
    if not value:
        return b""
    try:
        return base64.b64decode(str(value), validate=False)
    except binascii.Error as error:
        raise BadTarget(f"unable to load root certificates: {error}", 500) from error


def _of_service(service: Mapping[str, Any], ca: bytes) -> Target:
    name = f"{service.get('name', '')}.{service.get('namespace', '')}"
    port = service.get("port") or DEFAULT_PORT
    host = f"{name}.svc"
    hosts.check(host, port)
    shown, known = hosts.shown(f"{host}:{port}"), hosts.in_dns(host)
    authority = hosts.shown(f"{known}:{port}")
    return Target(known, port, authority, _path(service.get("path") or ""), known, ca, name, shown=shown)


def _of_url(url: str, ca: bytes) -> Target:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadTarget(f"Unparsable URL: {error}", 500) from error
    host = parts.hostname or ""
    if (
        parts.scheme != "https"
        or not host
        or any(not character.isprintable() or character == " " for character in host)
    ):
        raise BadTarget(f'Unparsable URL: "{url}" is no https URL', 500)
    known = hosts.in_dns(host)
    bracketed = f"[{known}]" if ":" in known else hosts.shown(known)
    authority = bracketed if port is None else f"{bracketed}:{port}"
    number = DEFAULT_PORT if port is None else port
    shown = hosts.shown(parts.netloc.rpartition("@")[2].removesuffix(":"))
    return Target(known, number, authority, _path(unquote(parts.path)), known, ca, shown=shown)


def _path(path: str) -> str:
    """Return the normalized and percent-encoded path for the request."""
    # upstream: normalizes a path before the request, such as that of envtest with its two slashes
    # So ``//convert`` becomes ``/convert``.
    return quote(normpath(f"/{path.strip('/')}"), safe="/:@$&+,;=-._~")
