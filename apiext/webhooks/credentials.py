"""Credentials for webhooks: the users of a kubeconfig, named after hosts.

See --admission-control-config-file.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from apiext.text.quotes import go_quote
from apiext.webhooks import yaml_files
from apiext.webhooks.errors import Broken

# Seconds after which the server reads the token file of a webhook's kubeconfig again (upstream: one minute).
TOKEN_FILE_EVERY = 60.0

KINDS = {  # kind of a file → its possible apiVersions
    "AdmissionConfiguration": ("apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"),
    "WebhookAdmissionConfiguration": ("apiserver.config.k8s.io/v1",),
    "WebhookAdmission": ("apiserver.config.k8s.io/v1alpha1",),
}
_FOREIGN = ("exec", "auth-provider")


class CredentialsError(ValueError):
    """The error of a configuration file that is missing, invalid or not supported."""


class Credentials:
    """Header lines and client certificate of one user.

    ``certificate`` is (certificate, key) in PEM. The token file is read again after TOKEN_FILE_EVERY seconds.
    """

    __slots__ = ("_lines", "_read", "_token_file", "certificate")

    def __init__(
        self,
        lines: tuple[str, ...] = (),
        certificate: tuple[bytes, bytes] | None = None,
        token_file: Path | None = None,
    ) -> None:
        self.certificate = certificate
        self._lines = lines
        self._token_file = token_file
        self._read: tuple[float, str] = (0.0, "")  # (time of the last read of the token file, token)

    async def lines(self) -> tuple[str, ...]:
        """Return the header lines; if the token file cannot be read, the last token stays in use.

        Raise Broken, with client-go's text, if there is no last token.
        """
        if self._token_file is None:
            return self._lines
        now = time.monotonic()
        if not self._read[1] or now - self._read[0] > TOKEN_FILE_EVERY:
            token, error = await asyncio.to_thread(_token_of, self._token_file)
            if not token and not self._read[1]:
                raise Broken(error)
            self._read = (now, token or self._read[1])
        return (*self._lines, f"Authorization: Bearer {self._read[1]}")


ANONYMOUS = Credentials()


def _token_of(path: Path) -> tuple[str, str]:
    """Return (token of a file, ""), or ("", error) if the file has no usable token."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        return "", f"failed to read token file {go_quote(str(path))}: open {path}: {(error.strerror or '').lower()}"
    except UnicodeError:
        token = "\n"
    if not token:
        return "", f"read empty token from file {go_quote(str(path))}"
    if not token.isprintable():  # a line break would begin another header
        return "", 'net/http: invalid header field value for "Authorization"'
    return token, ""


class Users:
    """The users of a kubeconfig; raises CredentialsError for an invalid file or user."""

    __slots__ = ("_default", "_known")

    def __init__(self, path: Path) -> None:
        document = read(path)
        users = named(path, document, "users", "user")
        self._known = {name: _user(path, name, user) for name, user in users.items()}
        current = named(path, document, "contexts", "context").get(str(document.get("current-context"))) or {}
        self._default = self._known.get(str(current.get("user")), ANONYMOUS)

    @property
    def current(self) -> Credentials:
        """The credentials of the user in the current context, ANONYMOUS if there is none."""
        return self._default

    def find(self, host: str, port: int) -> Credentials:
        """Return the credentials of the user whose name fits the host, else ``current``.

        Upstream: webhook/authentication.go. For the port 443 of a.svc, these names fit, in this order: a.svc:443,
        *.svc:443, a.svc, *.svc, and *.
        """
        for name in _names(host, port):
            if name in self._known:
                return self._known[name]
        return self._default


def _names(host: str, port: int) -> Iterator[str]:
    shown = f"[{host}]" if ":" in host else host
    for text in (f"{shown}:{port}", *((host,) if port == 443 else ())):
        yield text
        parts = text.split(".")
        for index in range(1, len(parts)):
            yield ".".join(("*", *parts[index:]))
    yield "*"


def users_of(path: str) -> dict[str, Users]:
    """Return admission plug-in → its users, from an AdmissionConfiguration file.

    Plug-ins without a kubeconfig are left out. Raise CredentialsError.
    """
    file = Path(path)
    found = {}
    for plugin in entries(file, read(file, "AdmissionConfiguration"), "plugins"):
        settings, at = plugin.get("configuration"), file
        if not settings and plugin.get("path"):
            at = file.parent / str(plugin["path"])
            settings = read(at)
        if isinstance(settings, Mapping) and str(settings.get("kind", "")).startswith("WebhookAdmission"):
            _check(at, settings, "WebhookAdmissionConfiguration", "WebhookAdmission")
            config = settings.get("kubeConfigFile")
            if config and not Path(str(config)).is_absolute():
                raise CredentialsError(
                    f'{at}: kubeConfigFile: Invalid value: "{config}": must be an absolute file path'
                )
            if config:
                found[str(plugin.get("name"))] = Users(Path(str(config)))
    return found


def read(path: Path, *kinds: str) -> Mapping[str, Any]:
    """Return the mapping in a YAML file; raise CredentialsError if it has none.

    If ``kinds`` are given, raise CredentialsError if the mapping has another kind, or an unknown apiVersion.
    """
    try:
        document = yaml_files.load(path)
    except (OSError, ValueError) as error:
        raise CredentialsError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(document, dict):
        raise CredentialsError(f"{path}: expected a mapping")
    if kinds:
        _check(path, document, *kinds)
    return document


def _check(path: Path, document: Mapping[str, Any], *kinds: str) -> None:
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in kinds or version not in KINDS[str(kind)]:
        raise CredentialsError(f"{path}: expected {' or '.join(kinds)}, not {version}, Kind={kind}")


def entries(path: Path, document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the list of mappings in a field, an empty list if the field is absent.

    Raise CredentialsError if the field has another value.
    """
    found = document.get(name) or []
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise CredentialsError(f"{path}: {name}: expected a list of mappings")
    return found


def named(path: Path, document: Mapping[str, Any], name: str, member: str) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a list in a kubeconfig by their names; raises CredentialsError.

    With ``member`` "user", the list ``users: [{name: alice, user: {token: t}}]`` gives ``{"alice": {"token": "t"}}``.
    """
    found = {}
    for entry in entries(path, document, name):
        held = found[str(entry.get("name"))] = entry.get(member) or {}
        if not isinstance(held, dict):
            raise CredentialsError(f"{path}: {name}: expected a mapping for {member} of {entry.get('name')}")
    return found


def _user(path: Path, name: str, user: Mapping[str, Any]) -> Credentials:
    where = f"{path}: user {name}"
    for foreign in _FOREIGN:
        if user.get(foreign):
            raise CredentialsError(f"{where}: {foreign} is not supported: use a token or a client certificate")
    token, file = user.get("token"), user.get("tokenFile")
    login = user.get("username") or user.get("password")
    if login and (token or file):
        raise CredentialsError(f"{where}: username/password or bearer token may be set, but not both")
    lines = [*_impersonation(where, user)]
    if login:
        pair = f"{user.get('username') or ''}:{user.get('password') or ''}"
        lines.append(f"Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
    elif token and not file:
        lines.append(f"Authorization: Bearer {token}")
    for line in lines:
        if not line.isascii() or not line.isprintable():
            raise CredentialsError(f"{where}: {line.partition(':')[0]} has characters that no header can hold")
    return Credentials(tuple(lines), _certificate(path, where, user), path.parent / str(file) if file else None)


def _impersonation(where: str, user: Mapping[str, Any]) -> Iterator[str]:
    if not user.get("as"):
        return
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not isinstance(groups, list):
        raise CredentialsError(f"{where}: as-groups: expected a list")
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise CredentialsError(f"{where}: as-user-extra: expected a mapping of lists")
    yield f"Impersonate-User: {user['as']}"
    if user.get("as-uid"):
        yield f"Impersonate-Uid: {user['as-uid']}"
    for group in groups:
        yield f"Impersonate-Group: {group}"
    for key, values in extra.items():
        for value in values:
            yield f"Impersonate-Extra-{key}: {value}"


def _certificate(path: Path, where: str, user: Mapping[str, Any]) -> tuple[bytes, bytes] | None:
    found = []
    for name in ("client-certificate", "client-key"):
        data, file = user.get(f"{name}-data"), user.get(name)
        try:
            if data:
                found.append(base64.b64decode(str(data), validate=True))
            elif file:
                found.append((path.parent / str(file)).read_bytes())
        except (OSError, binascii.Error) as error:
            raise CredentialsError(f"{where}: {name}: {error}") from error
    if len(found) == 1:
        raise CredentialsError(f"{where}: client-certificate and client-key go together")
    return (found[0], found[1]) if found else None
