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
"""The extra attribute with the id of the credential."""


class User(Struct, frozen=True):
    """A user for admission, authorization and audit."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further attributes, by name

    @property
    def is_master(self) -> bool:
        """Report whether the user may do everything."""
        return MASTERS in self.groups

    @property
    def is_anonymous(self) -> bool:
        """Report whether the user is anonymous."""
        return UNAUTHENTICATED in self.groups


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
SUPERUSER = User("admin", (MASTERS, AUTHENTICATED))
"""The user of every request when the server runs without authentication."""


REFUSED = User("")
"""The user of an invalid certificate: without another credential the request is refused."""


def proven(user: User) -> User:
    """Return a user named by a trusted proxy or token; add the group of authenticated users, except to anonymous."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or user.is_anonymous:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


def authenticated(name: str, groups: tuple[str, ...] = (), uid: str = "") -> User:
    """Return an authenticated user; add the group of all such users."""
    return User(name, groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED), uid)


def account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups of all service accounts, and of those of a namespace."""
    return (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}")


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user of a service account."""
    return authenticated(f"{ACCOUNT_PREFIX}{namespace}:{name}", account_groups(namespace), uid)


def readable(value: str) -> str:
    """Return a header's value as text, with U+FFFD for invalid UTF-8, since answers and objects contain it."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def unescaped(key: str) -> str:
    """Return the key of an extra from the name of a header; an invalid escape stays unchanged."""
    return key if _NO_ESCAPE.search(key) else unquote(key)


_NO_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
