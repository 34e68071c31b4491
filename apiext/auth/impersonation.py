"""Impersonation: the Impersonate headers, the required permissions, and the resulting user.

See AUT-005. There are several modes, and a user needs the permissions of only one of them. All modes except the oldest
(``impersonate``) also require a permission for the request itself: the verb ``impersonate-on:MODE:VERB`` on the
resource of the request.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from apiext.auth.authorization import Attributes, Authorizer, denial
from apiext.auth.user import (
    ACCOUNT_PREFIX,
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_NAME,
    UNAUTHENTICATED,
    User,
    account_groups,
    readable,
    unescaped,
)
from apiext.meta.status import StatusError
from apiext.meta.syntax import dns1123_label, dns1123_subdomain
from apiext.text.quotes import go_quote

_EXTRA = "impersonate-extra-"
_NONE = "\n"  # stands for an absent header: no header value contains a line break
_NODE = "system:node:"
_NODES = "system:nodes"
_NODE_KEYS = "authentication.kubernetes.io/associated-node-keys"
_ACCOUNT_PARTS = 2
_GROUP = "authentication.k8s.io"
_MANY = 4
"""From this number of groups or extra values on, the permission for all (``*``) is checked first.

Upstream: manyAuthorizationChecks….
"""
_KEY_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+").fullmatch


class MissingUser(ValueError):
    """The headers name groups, uid or extras, but no user."""


class Wanted(Struct, frozen=True):
    """The user that the Impersonate headers of a request name."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def only_named(self) -> bool:
        """Report whether the headers have the name of the user, but no groups, uid or extras."""
        return not (self.groups or self.uid or self.extra)

    def as_user(self) -> User:
        """Return the user, with the groups that upstream adds implicitly.

        Upstream: WithImpersonation.
        """
        account = account_of(self.user)
        groups = list(self.groups)
        if account is not None and not groups:
            groups = [*account_groups(account[0])]
        if self.user == ANONYMOUS.name:
            groups += [UNAUTHENTICATED] * (UNAUTHENTICATED not in groups)
        elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
            groups.append(AUTHENTICATED)
        return User(self.user, tuple(groups), self.uid, self.extra)

    def permissions(self, asking: User, path: str) -> Iterator[Attributes]:
        """Yield the permissions that ``asking`` needs in the oldest mode.

        They are permissions for the user, the uid, each group and each extra value.
        """
        yield self._user(Attributes(asking, "impersonate", path, "", "v1", "users"))
        if self.uid:
            yield Attributes(asking, "impersonate", path, _GROUP, "v1", "uids", name=self.uid)
        for group in self.groups:
            yield Attributes(asking, "impersonate", path, "", "v1", "groups", name=group)
        for key, values in self.extra:
            for value in values:
                yield Attributes(asking, "impersonate", path, _GROUP, "v1", "userextras", key, name=value)

    def _user(self, attributes: Attributes) -> Attributes:
        account = account_of(self.user)
        if account is not None:
            return replace(attributes, resource="serviceaccounts", namespace=account[0], name=account[1])
        return replace(attributes, name=self.user)


class Mode(Struct, frozen=True):
    """A mode of impersonation.

    ``fits`` reports whether the mode applies to a wanted user and a requesting user. If ``groups`` are not empty, the
    impersonated user gets these groups. If ``own_node`` is true, ``fits`` compares the node of the requesting user with
    the wanted node. Then the user needs permission for the node name ``*``, and the authorizer gets the requesting user
    with one extra, whose values are the keys of the user's extras.
    """

    name: str
    fits: Callable[[Wanted, User], bool]
    groups: tuple[str, ...] = ()
    own_node: bool = False

    def user(self, wanted: Wanted, request: Attributes, authorize: Authorizer) -> User:
        """Return the impersonated user; raise StatusError (403) if a permission is missing."""
        if self.own_node:
            keys = tuple(sorted(key for key, _ in request.user.extra))
            request = replace(request, user=replace(request.user, extra=((_NODE_KEYS, keys),)))
        _require(authorize, replace(request, verb=f"impersonate-on:{self.name}:{request.verb}"))
        attributes = Attributes(request.user, f"impersonate:{self.name}", request.path, _GROUP, "v1")
        _require(authorize, self._user_attributes(wanted, replace(attributes, resource="users")))
        if wanted.uid:
            _require(authorize, replace(attributes, resource="uids", name=wanted.uid))
        if wanted.groups:
            _require_groups(authorize, wanted.groups, replace(attributes, resource="groups"))
        if wanted.extra:
            _require_extra(authorize, wanted.extra, replace(attributes, resource="userextras"))
        return (replace(wanted, groups=self.groups) if self.groups else wanted).as_user()

    def _user_attributes(self, wanted: Wanted, attributes: Attributes) -> Attributes:
        node = _node_of(wanted.user)
        if node:
            return replace(attributes, resource="nodes", name="*" if self.own_node else node)
        return wanted._user(attributes)


def _require(authorize: Authorizer, attributes: Attributes) -> None:
    decision = authorize(attributes)
    if not decision.allowed:
        raise denial(attributes, decision.reason)


def _require_groups(authorize: Authorizer, groups: tuple[str, ...], attributes: Attributes) -> None:
    if "" in groups:
        raise denial(attributes, "impersonating the empty string group is not allowed")
    if MASTERS in groups:
        raise denial(replace(attributes, name=MASTERS), "impersonating the system:masters group is not allowed")
    if len(groups) >= _MANY and authorize(replace(attributes, name="*")):
        return
    for group in groups:
        _require(authorize, replace(attributes, name=group))


def _require_extra(
    authorize: Authorizer, extra: tuple[tuple[str, tuple[str, ...]], ...], attributes: Attributes
) -> None:
    fault = next(filter(None, (_extra_fault(key, values) for key, values in extra)), "")
    if fault:
        raise denial(attributes, fault)
    if sum(len(values) for _, values in extra) >= _MANY and authorize(replace(attributes, subresource="*", name="*")):
        return
    for key, values in extra:
        for value in values:
            _require(authorize, replace(attributes, subresource=key, name=value))


def _extra_fault(key: str, values: tuple[str, ...]) -> str:
    """Return the error message for an impersonated extra, empty if the extra is valid."""
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    domain, _, path = key.partition("/")
    faults = (
        dns1123_subdomain(domain) if domain and path else ['must be a domain-prefixed path (such as "acme.io/foo")']
    )
    if not faults and not _KEY_PATH(path):
        faults = ["Invalid path"]
    if faults:
        errors = [f'extra.key: Invalid value: "{key}": {fault}' for fault in faults]
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return f"impersonating an invalid key in extra is not allowed: {listed}"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {go_quote(key)}"
    return "impersonating the empty string value in extra is not allowed" if "" in values else ""


def _node_of(user: str) -> str:
    """Return the node name in a node's user name, empty for other users."""
    node = user.removeprefix(_NODE)
    return node if user.startswith(_NODE) and not dns1123_subdomain(node) else ""


def _runs_on(asking: User, node: str) -> bool:
    """Report whether a service account's token is bound to a node, or to a pod on it."""
    return bool(node) and account_of(asking.name) is not None and dict(asking.extra).get(NODE_NAME) == (node,)


MODES = (
    Mode(
        "associated-node",
        lambda wanted, asking: wanted.only_named and _runs_on(asking, _node_of(wanted.user)),
        (_NODES,),
        own_node=True,
    ),
    Mode("arbitrary-node", lambda wanted, _: wanted.only_named and bool(_node_of(wanted.user)), (_NODES,)),
    Mode("serviceaccount", lambda wanted, _: wanted.only_named and account_of(wanted.user) is not None),
    Mode("user-info", lambda wanted, _: not _node_of(wanted.user) and account_of(wanted.user) is None),
)
"""The modes, except the oldest one."""


def acting(
    wanted: Wanted, request: Attributes, authorize: Authorizer, note: Callable[[str], None] = lambda _: None
) -> User:
    """Return the impersonated user of a request; raise StatusError (403) if no mode allows it.

    The error is that of the first mode in MODES that applies, else that of the oldest mode. If a mode other than the
    oldest allows the request, this function calls ``note`` with the verb of the mode.
    """
    first: StatusError | None = None
    for mode in MODES:
        if mode.fits(wanted, request.user):
            try:
                found = mode.user(wanted, request, authorize)
            except StatusError as refusal:
                first = first or refusal
            else:
                note(f"impersonate:{mode.name}")
                return found
    for permission in wanted.permissions(request.user, request.path):
        decision = authorize(permission)
        if not decision.allowed:
            raise first or denial(permission, decision.reason)
    return wanted.as_user()


def account_of(user: str) -> tuple[str, str] | None:
    """Return (namespace, name) of a service account from its user name, or None for other users."""
    parts = user.removeprefix(ACCOUNT_PREFIX).split(":")
    if not user.startswith(ACCOUNT_PREFIX) or len(parts) != _ACCOUNT_PARTS:
        return None
    namespace, name = parts
    return None if dns1123_label(namespace) or dns1123_subdomain(name) else (namespace, name)


class Headers(Protocol):
    """Access to request headers; names are case-insensitive."""

    def get(self, name: str, default: str = "", /) -> str:
        """Return the first value of a header."""


def is_requested(headers: Headers) -> bool:
    """Report whether a request has impersonation headers.

    Extras alone do not count, but an empty group does.
    """
    get = headers.get
    return bool(get("Impersonate-User") or get("Impersonate-Uid") or get("Impersonate-Group", _NONE) != _NONE)


def parse(headers: Iterable[tuple[str, str]]) -> Wanted:
    """Return the user that the headers name.

    Raise MissingUser for headers without a user.
    """
    user, uid, groups = "", "", []
    extra: dict[str, list[str]] = {}
    for name, given in headers:
        lower, value = name.lower(), readable(given)
        if lower == "impersonate-user":
            user = user or value
        elif lower == "impersonate-group":
            groups.append(value)
        elif lower == "impersonate-uid":
            uid = uid or value
        elif lower.startswith(_EXTRA):
            extra.setdefault(unescaped(lower[len(_EXTRA) :]), []).append(value)
    wanted = Wanted(user, tuple(groups), uid, tuple((key, tuple(values)) for key, values in sorted(extra.items())))
    if not user:
        raise MissingUser(f"requested {_in_go(wanted)} without impersonating a user name")
    return wanted


def _in_go(wanted: Wanted) -> str:
    """Format the requested user as Go prints upstream's ``user.DefaultInfo``."""
    extra = ", ".join(f"{go_quote(key)}:{_texts_in_go(values)}" for key, values in wanted.extra)
    return (
        f'&user.DefaultInfo{{Name:"", UID:{go_quote(wanted.uid)}, Groups:{_texts_in_go(wanted.groups)}, '
        f"Extra:map[string][]string{f'{{{extra}}}' if extra else '(nil)'}}}"
    )


def _texts_in_go(texts: tuple[str, ...]) -> str:
    return f"[]string{{{', '.join(map(go_quote, texts))}}}" if texts else "[]string(nil)"
