"""The kubeconfig of the administrator; each start of the server writes it atomically."""

import base64
from pathlib import Path

from msgspec import Struct

from apiext.auth import limits
from apiext.documents.document import Document
from apiext.documents.encoding import decode_yaml, encode, pretty
from apiext.system import files
from apiext.system.streams import is_stream

NAME = "apiext"
"""Name of the cluster, the context and the user."""


class Access(Struct, frozen=True):
    """Access to a server: its URL, its authority, and a token or client certificate with key.

    Authority, certificate and key are in PEM.
    """

    server: str
    ca: bytes = b""
    token: str = ""
    certificate: bytes = b""
    key: bytes = b""


def document(access: Access) -> Document:
    """Return a kubeconfig with one cluster, one context, and a user if there is a credential."""
    name = NAME
    cluster: Document = {"server": access.server}
    if access.ca:
        cluster["certificate-authority-data"] = _base64(access.ca)
    user = _user(access)
    context: Document = {"cluster": name, "namespace": "default"} | ({"user": name} if user else {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
        "users": [{"name": name, "user": user}] if user else [],
    }


def _user(access: Access) -> Document:
    if access.token:
        return {"token": access.token}
    if access.certificate:
        return {
            "client-certificate-data": _base64(access.certificate),
            "client-key-data": _base64(access.key),
        }
    return {}


def write(file: Path, access: Access) -> None:
    """Write the kubeconfig, readable by its owner only; raises OSError.

    The file is JSON, which is valid YAML, so that a start does not import the YAML library (decision 36).
    """
    files.write(file, pretty(encode(document(access))) + b"\n")


def check_replaceable(file: Path) -> None:
    """Raise ValueError if a file has content other than the kubeconfig of an earlier start."""
    file = files.target(file)
    if is_stream(file) or not file.is_file() or not (size := file.stat().st_size):
        return
    if size > limits.OWN_KUBECONFIG or not _is_own(file):
        raise ValueError("it has other content, which would be lost; `apiext kubeconfig merge` adds to such a file")


def _is_own(file: Path) -> bool:
    try:
        found, _ = decode_yaml(file.read_bytes())
        parts = [found[many] or () for many in ("clusters", "contexts", "users")]
        return found["kind"] == "Config" and all(entry["name"] == NAME for entries in parts for entry in entries)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
