"""Server and user of a kubeconfig's current context (upstream: webhook.LoadKubeconfig)."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from apiext.webhooks.credentials import ANONYMOUS, Credentials, CredentialsError, Users, named, read
from apiext.webhooks.errors import BadTarget
from apiext.webhooks.target import Target, target_at

_FOREIGN = ("proxy-url", "insecure-skip-tls-verify")


class Remote(Struct, frozen=True):
    """The server that gets POST requests, and the credentials for it."""

    target: Target
    user: Credentials


def remote_of(path: Path) -> Remote:
    """Return the server and the credentials of a kubeconfig's current context.

    Raise CredentialsError.
    """
    document = read(path)
    context = named(path, document, "contexts", "context").get(str(document.get("current-context")))
    if context is None:
        raise CredentialsError(f"{path}: current-context: there is no context {document.get('current-context')!r}")
    cluster = named(path, document, "clusters", "cluster").get(str(context.get("cluster")))
    if not cluster or not cluster.get("server"):
        raise CredentialsError(f"{path}: cluster {context.get('cluster')!r} does not exist or has no server")
    for foreign in _FOREIGN:
        if cluster.get(foreign):
            raise CredentialsError(f"{path}: cluster {context.get('cluster')}: {foreign} is not supported")
    server = str(cluster["server"])
    try:
        target = target_at(server, _authority(path, cluster), str(cluster.get("tls-server-name") or ""))
    except BadTarget as error:
        why = "it is not an https or http URL" if "@" in server else error  # the part before an @ may be a password
        raise CredentialsError(f"{path}: server: {why}") from error
    users = Users(path)  # upstream: sends credentials over TLS only
    return Remote(target, ANONYMOUS if target.plain else users.current)


def _authority(path: Path, cluster: Mapping[str, Any]) -> bytes:
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    try:
        if data:
            return base64.b64decode(str(data), validate=True)
        return (path.parent / str(file)).read_bytes() if file else b""
    except (OSError, binascii.Error) as error:
        raise CredentialsError(f"{path}: certificate-authority: {error}") from error
