"""Find the server for a command, from its flags or from a kubeconfig.

Several files in KUBECONFIG count as one, as with kubectl.
"""

import argparse
import base64
import binascii
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    return from_kubeconfig(*_kubeconfigs(options.kubeconfig, environment), context=options.context)


def _bearer(what: str, token: str) -> dict[str, str]:
    """Return the header for a token, empty for an empty token.

    Raise AccessError if a character is not printable ASCII. The text of the error does not show the token.
    """
    if not token.isascii() or not token.isprintable():
        raise AccessError(f"{what} has characters that an HTTP header cannot contain")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _kubeconfigs(named: str, environment: Mapping[str, str]) -> list[Path]:
    """Return the kubeconfig of the flag, else the existing files of $KUBECONFIG.

    Without the flag and the variable, return ~/.kube/config if it exists.
    """
    if named:
        return [Path(named)]
    listed = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    listed = listed or [Path(environment.get("HOME", "/"), ".kube", "config")]
    return [path for path in listed if path.exists()]


class _Entry(NamedTuple):
    """A cluster, context or user of a kubeconfig.

    Paths in it are relative to the directory of the file.
    """

    file: Path
    fields: Mapping[str, Any]


def from_kubeconfig(*files: Path, context: str = "") -> Access:
    """Return the access of a context in kubeconfigs, by default their current context.

    Several files count as one, as with kubectl: of entries with the same name, the first counts, and so does the first
    current context. Without a current context, return the access to the URL INSECURE. Raise AccessError.
    """
    documents = [(file, _read(file)) for file in files]
    shown = os.pathsep.join(map(str, files))
    wanted = context or next((it for _, document in documents if (it := document.get("current-context"))), "")
    if not wanted:  # as kubectl does, for example with the empty file /dev/null
        return Access(INSECURE)
    chosen = _named(documents, "context", wanted).fields
    cluster = _named(documents, "cluster", chosen.get("cluster"))
    user = _named(documents, "user", chosen.get("user")) if chosen.get("user") else _Entry(cluster.file, {})
    url = str(cluster.fields.get("server") or "")
    if not url.startswith(("http://", "https://")):
        raise AccessError(f"{cluster.file}: the cluster of context {wanted} has no http or https server")
    login = user.fields
    token = login.get("token") or _text(user.file, login.get("tokenFile"))
    if not isinstance(token, str):
        raise AccessError(f"{user.file}: the token of context {wanted} is not a string: put it into quotes")
    if not token and not _holds(login, "client-certificate") and (login.get("exec") or login.get("auth-provider")):
        raise AccessError(
            f"{shown}: the user of context {wanted} uses a login plug-in: use --server and --token instead"
        )
    headers = _bearer(f"{user.file}: the token of context {wanted}", token)
    return Access(url.rstrip("/"), headers, _tls(url, "", (cluster, user)))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        raw = file.read_bytes()
        document, _ = decode_yaml(raw) if raw.strip() else ({}, [])
    except (OSError, DecodeError) as error:
        raise AccessError(f"{file}: {error}") from error
    if not isinstance(document, dict):
        raise AccessError(f"{file} is not a kubeconfig")
    return document


def _named(documents: Sequence[tuple[Path, Mapping[str, Any]]], kind: str, name: object) -> _Entry:
    for file, document in documents:
        entries = document.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
                return _Entry(file, entry[kind])
    raise AccessError(f"{os.pathsep.join(str(file) for file, _ in documents)}: there is no {kind} named {name!r}")


def _holds(holder: Mapping[str, Any], key: str) -> bool:
    return bool(holder.get(key) or holder.get(f"{key}-data"))


def _text(file: Path, path: object) -> str:
    try:
        return (file.parent / str(path)).read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeError) as error:
        raise AccessError(f"{file}: {error}") from error


def _tls(url: str, cafile: str, found: tuple[_Entry, _Entry] | None) -> ssl.SSLContext | None:
    """Return the TLS settings for a URL, None for http. Raise AccessError."""
    if not url.startswith("https://"):
        return None
    try:
        if found is None:
            return relax_verification(ssl.create_default_context(cafile=cafile or None))
        cluster, user = found
        authority = _pem(cluster, "certificate-authority")
        context = relax_verification(ssl.create_default_context(cadata=authority.decode() or None))
        if cluster.fields.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if _holds(user.fields, "client-certificate"):
            load_client_certificate(context, _pem(user, "client-certificate"), _pem(user, "client-key"))
        return context
    except (OSError, ValueError, binascii.Error) as error:
        raise AccessError(f"the certificates for {url} cannot be used: {error}") from error


def _pem(holder: _Entry, key: str) -> bytes:
    if data := holder.fields.get(f"{key}-data"):
        return base64.b64decode(str(data), validate=True)
    path = holder.fields.get(key)
    return (holder.file.parent / str(path)).read_bytes() if path else b""
