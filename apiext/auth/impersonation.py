"""Acting as somebody else: the Impersonate headers, what one must be allowed for it, and who one is then (AUT-005)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from apiext.auth.authorization import Attributes
from apiext.auth.user import AUTHENTICATED, UNAUTHENTICATED, User

_EXTRA = "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_ACCOUNTS = "system:serviceaccounts"
_ANONYMOUS = "system:anonymous"
_ACCOUNT_PARTS = 2
_GROUP = "authentication.k8s.io"


class NobodyNamed(ValueError):
    """Groups, uid or extras are asked for without a user."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Who the headers of a request name."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def as_user(self) -> User:
        """Return the user, with the groups that go without saying (upstream: WithImpersonation)."""
        account = account_of(self.user)
        groups = list(self.groups)
        if account is not None and not groups:
            groups = [_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}"]
        if self.user == _ANONYMOUS:
            groups += [UNAUTHENTICATED] * (UNAUTHENTICATED not in groups)
        elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
            groups.append(AUTHENTICATED)
        return User(self.user, tuple(groups), self.uid, self.extra)

    def permissions(self, asking: User, path: str) -> Iterator[Attributes]:
        """Yield what the asking user must be allowed to do: impersonate the user, each group, the uid, each extra."""
        account = account_of(self.user)
        if account is not None:
            namespace, name = account
            yield Attributes(asking, "impersonate", path, "", "v1", "serviceaccounts", "", namespace, name)
        else:
            yield Attributes(asking, "impersonate", path, "", "v1", "users", name=self.user)
        for group in self.groups:
            yield Attributes(asking, "impersonate", path, "", "v1", "groups", name=group)
        for key, values in self.extra:
            for value in values:
                yield Attributes(asking, "impersonate", path, _GROUP, "v1", "userextras", key, name=value)
        if self.uid:
            yield Attributes(asking, "impersonate", path, _GROUP, "v1", "uids", name=self.uid)


def account_of(user: str) -> tuple[str, str] | None:
    """Return (namespace, name) of a service account's user name, None for other users."""
    parts = user.removeprefix(_ACCOUNT).split(":")
    if not user.startswith(_ACCOUNT) or len(parts) != _ACCOUNT_PARTS or not all(parts):
        return None
    return parts[0], parts[1]


class Headers(Protocol):
    """What is asked of request headers; names are matched without regard to case."""

    def get(self, name: str, default: str = "", /) -> str:
        """Return the first value of a header."""


def is_meant(headers: Headers) -> bool:
    """Whether a request asks to act as somebody else; extras alone name nobody."""
    get = headers.get
    return bool(get("Impersonate-User") or get("Impersonate-Group") or get("Impersonate-Uid"))


def parse(headers: Iterable[tuple[str, str]]) -> Wanted:
    """Return who the headers name; raises NobodyNamed when they name groups or more, and no user."""
    user, uid, groups = "", "", []
    extra: dict[str, list[str]] = {}
    for name, value in headers:
        lower = name.lower()
        if lower == "impersonate-user":
            user = user or value
        elif lower == "impersonate-group":
            groups.append(value)
        elif lower == "impersonate-uid":
            uid = uid or value
        elif lower.startswith(_EXTRA):
            extra.setdefault(unquote(lower[len(_EXTRA) :]), []).append(value)
    if not user:
        raise NobodyNamed("requested to impersonate groups, a uid or extras without impersonating a user")
    return Wanted(user, tuple(groups), uid, tuple((key, tuple(values)) for key, values in sorted(extra.items())))
