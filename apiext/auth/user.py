"""Who sends a request: a name, groups, and nothing about how that was found out."""

import re
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ACCOUNT_PREFIX = "system:serviceaccount:"
"""What the name of a service account's user begins with."""
_ACCOUNTS = "system:serviceaccounts"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""The extra that tells which credential a user has shown."""


class User(Struct, frozen=True):
    """A user as admission, authorization and audit see it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # what else the authenticator says, by name

    @property
    def is_master(self) -> bool:
        """Whether the user may do everything."""
        return MASTERS in self.groups

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody said who it is."""
        return UNAUTHENTICATED in self.groups


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
SUPERUSER = User("admin", (MASTERS, AUTHENTICATED))
"""The user of every request when the server runs without authentication."""


REFUSED = User("")
"""Whom a certificate names that proves nobody: without another credential the request is refused."""


def proven(user: User) -> User:
    """Return a user that somebody vouches for; the group of those who proved to be one is added, but to nobody."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or user.is_anonymous:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


def authenticated(name: str, groups: tuple[str, ...] = (), uid: str = "") -> User:
    """Return a user that proved who it is; the group of all such users is added."""
    return User(name, groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED), uid)


def account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups of all service accounts, and of those of a namespace."""
    return (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}")


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user that a service account is."""
    return authenticated(f"{ACCOUNT_PREFIX}{namespace}:{name}", account_groups(namespace), uid)


def readable(value: str) -> str:
    """Return what a header says of a user, with a mark for what is no UTF-8: it goes into answers and objects."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def unescaped(key: str) -> str:
    """Return the key of an extra as the name of a header has it; one with an escape that is none stays as it is."""
    return key if _NO_ESCAPE.search(key) else unquote(key)


_NO_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
