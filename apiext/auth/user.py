"""The user of a request: name, groups, uid and extras, from any authenticator."""

import re
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ACCOUNT_PREFIX = "system:serviceaccount:"
"""Prefix of the user names of service accounts."""
_ACCOUNTS = "system:serviceaccounts"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""Name of the extra attribute that contains the id of the user's credential."""
NODE_NAME = "authentication.kubernetes.io/node-name"
"""Name of the extra attribute that contains the node of a service account: of its token, or of the token's pod."""


class User(Struct, frozen=True):
    """A user for admission, authorization and audit."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (name, values) of further attributes

    @property
    def is_master(self) -> bool:
        """Report whether the user may do everything."""
        return MASTERS in self.groups

    @property
    def is_anonymous(self) -> bool:
        """Report whether the user is in the group of unauthenticated users."""
        return UNAUTHENTICATED in self.groups


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
SUPERUSER = User("admin", (MASTERS, AUTHENTICATED))
"""The user of every request when the server runs without authentication."""


REFUSED = User("")
"""Stands for an invalid client certificate; the server rejects the request unless it has another valid credential."""


def proven(user: User) -> User:
    """Add the group system:authenticated to a user that a certificate or proxy names.

    Return an anonymous user unchanged.
    """
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or user.is_anonymous:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


def authenticated(name: str, groups: tuple[str, ...] = (), uid: str = "") -> User:
    """Return an authenticated user; add the group system:authenticated if it is missing."""
    return User(name, groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED), uid)


def account_groups(namespace: str) -> tuple[str, str]:
    """Return the group of all service accounts, and the group of those in a namespace."""
    return (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}")


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user of a service account."""
    return authenticated(f"{ACCOUNT_PREFIX}{namespace}:{name}", account_groups(namespace), uid)


def readable(value: str) -> str:
    """Return a header's value with U+FFFD for invalid UTF-8.

    Responses and objects may contain the value.
    """
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def unescaped(key: str) -> str:
    """Decode the percent-encoded key of an extra; return a key with an invalid escape unchanged."""
    return key if _NO_ESCAPE.search(key) else unquote(key)


_NO_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
