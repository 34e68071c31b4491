"""Find the server for a command, from its flags or from a kubeconfig.

Of several files in KUBECONFIG, only the first existing file is used; kubectl merges all of them.
"""

import argparse
import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from apiext.documents.encoding import decode_yaml
from apiext.documents.errors import DecodeError
from apiext.system.certificates import load_client_certificate, relax_verification

# the default address of a server with --insecure, which kubectl also uses if it has no kubeconfig
INSECURE = "http://127.0.0.1:8080"


class AccessError(ValueError):
    """The server cannot be reached with these settings; the text names the setting to change."""


class Access(Struct, frozen=True):
    """The server's URL and the credentials for it: headers, and the TLS settings for https."""

    url: str
    headers: Mapping[str, str] = {}
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:  # omits the headers, which may contain a token
        return f"Access({self.url!r})"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the function ``resolve`` reads."""
    parser.add_argument(
        "--server", default="", metavar="URL", help="URL of the server (default: that of the kubeconfig)"
    )
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="kubeconfig (default $KUBECONFIG, ~/.kube/config)"
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current context)"
    )
    parser.add_argument("--token", default="", metavar="TOKEN", help="bearer token, with --server")
    parser.add_argument("--cafile", default="", metavar="FILE", help="CA certificate of the server, with --server")


def resolve(options: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Return the access from the flags, else from the kubeconfig, else to the URL INSECURE.

    Raise AccessError.
    """
    if options.server:
        if not options.server.startswith(("http://", "https://")):
            raise AccessError(f"--server {options.server}: use http://host:port or https://host:port")
        return Access(
            options.server.rstrip("/"), _bearer("--token", options.token), _tls(options.server, options.cafile, None)
        )
    file = _kubeconfig(options.kubeconfig, environment)
    return from_kubeconfig(file, options.context) if file is not None else Access(INSECURE)


def _bearer(what: str, token: str) -> dict[str, str]:
    """Return the header for a token, empty for an empty token.

    Raise AccessError if a character is not printable ASCII. The text of the error does not show the token.
    """
    if not token.isascii() or not token.isprintable():
        raise AccessError(f"{what} has characters that an HTTP header cannot contain")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _kubeconfig(named: str, environment: Mapping[str, str]) -> Path | None:
    if named:
        return Path(named)
    listed = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    usual = Path(environment.get("HOME", "/"), ".kube", "config")
    return next((path for path in listed if path.exists()), usual if not listed and usual.exists() else None)


def from_kubeconfig(file: Path, context: str = "") -> Access:
    """Return the access of a context in a kubeconfig, by default its current context.

    If there is no current context, return the access to the URL INSECURE. Raise AccessError.
    """
    try:
        raw = file.read_bytes()
        document, _ = decode_yaml(raw) if raw.strip() else ({}, [])
    except (OSError, DecodeError) as error:
        raise AccessError(f"{file}: {error}") from error
    if not isinstance(document, dict):
        raise AccessError(f"{file} is not a kubeconfig")
    wanted = context or document.get("current-context") or ""
    if not wanted:  # as kubectl does, for example with the empty file /dev/null
        return Access(INSECURE)
    chosen = _named(document, file, "contexts", "context", wanted)
    cluster = _named(document, file, "clusters", "cluster", chosen.get("cluster"))
    user = _named(document, file, "users", "user", chosen.get("user")) if chosen.get("user") else {}
    url = str(cluster.get("server") or "")
    if not url.startswith(("http://", "https://")):
        raise AccessError(f"{file}: the cluster of context {wanted} has no http or https server")
    token = user.get("token") or _text(file, user.get("tokenFile"))
    if not isinstance(token, str):
        raise AccessError(f"{file}: the token of context {wanted} is not a string: put it into quotes")
    if not token and not _holds(user, "client-certificate") and (user.get("exec") or user.get("auth-provider")):
        raise AccessError(
            f"{file}: the user of context {wanted} uses a login plug-in: use --server and --token instead"
        )
    headers = _bearer(f"{file}: the token of context {wanted}", token)
    return Access(url.rstrip("/"), headers, _tls(url, "", (file, cluster, user)))


def _named(document: Mapping[str, Any], file: Path, many: str, one: str, name: object) -> Mapping[str, Any]:
    entries = document.get(many)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(one), dict):
            found: Mapping[str, Any] = entry[one]
            return found
    raise AccessError(f"{file}: there is no {one} named {name!r}")


def _holds(holder: Mapping[str, Any], key: str) -> bool:
    return bool(holder.get(key) or holder.get(f"{key}-data"))


def _text(file: Path, path: object) -> str:
    try:
        return (file.parent / str(path)).read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeError) as error:
        raise AccessError(f"{file}: {error}") from error


def _tls(
    url: str, cafile: str, found: tuple[Path, Mapping[str, Any], Mapping[str, Any]] | None
) -> ssl.SSLContext | None:
    """Return the TLS settings for a URL, None for http. Raise AccessError."""
    if not url.startswith("https://"):
        return None
    try:
        if found is None:
            return relax_verification(ssl.create_default_context(cafile=cafile or None))
        file, cluster, user = found
        authority = _pem(file, cluster, "certificate-authority")
        context = relax_verification(ssl.create_default_context(cadata=authority.decode() or None))
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if _holds(user, "client-certificate"):
            load_client_certificate(context, _pem(file, user, "client-certificate"), _pem(file, user, "client-key"))
        return context
    except (OSError, ValueError, binascii.Error) as error:
        raise AccessError(f"the certificates for {url} cannot be used: {error}") from error


def _pem(file: Path, holder: Mapping[str, Any], key: str) -> bytes:
    if data := holder.get(f"{key}-data"):
        return base64.b64decode(str(data), validate=True)
    return (file.parent / str(holder[key])).read_bytes() if holder.get(key) else b""
