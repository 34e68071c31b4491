"""Authorization: the attributes of a request, the modes, and the message of a denial.

See AUT-003, ERR-18.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from apiext import config
from apiext.auth.user import User
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.text.quotes import go_quote

PUBLIC_PATHS = ("/healthz", "/livez", "/readyz", "/version")
"""Paths that every client may read, with all paths below them (upstream's public-info rule)."""


class Attributes(Struct, frozen=True):
    """An action that a user requests.

    ``at_path`` is true for an action on a path that is not a resource.
    """

    user: User
    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    at_path: bool = False


class Decision(Struct, frozen=True):
    """A decision about an action, with the reason for the client.

    Its truth value is ``allowed``.
    """

    allowed: bool
    reason: str = ""

    def __bool__(self) -> bool:
        """Report whether the action is allowed."""
        return self.allowed


ALLOWED = Decision(True)
Authorizer = Callable[[Attributes], Decision]
"""Action → decision."""
_FORBIDDEN = Decision(False, "Everything is forbidden.")


def always_allow(attributes: Attributes) -> Decision:
    """Allow every action."""
    return ALLOWED


def always_deny(attributes: Attributes) -> Decision:
    """Allow all actions of members of system:masters, and no other action."""
    return ALLOWED if attributes.user.is_master else _FORBIDDEN


class Rule(Struct, frozen=True):
    """A permission: verbs on resources of API groups, or verbs on URL paths.

    If ``names`` is not empty, a permission on resources is only for the objects with these names.
    """

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Rules(Struct, frozen=True):
    """The permissions of a user in a namespace.

    ``fault`` says why the list may be incomplete; it is empty for a complete list.
    """

    rules: tuple[Rule, ...] = ()
    fault: str = ""


@runtime_checkable
class Ruled(Protocol):
    """An authorizer that can list permissions."""

    def rules_for(self, user: User, namespace: str) -> Rules:
        """Return the permissions of a user in a namespace."""


EVERYTHING = Rules((Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",))))


def rules_of(authorizer: Authorizer, user: User, namespace: str) -> Rules:
    """Return the permissions of a user in a namespace.

    The result is empty if the authorizer cannot list permissions.
    """
    if authorizer is always_allow:
        return EVERYTHING
    return authorizer.rules_for(user, namespace) if isinstance(authorizer, Ruled) else Rules()


class Modes:
    """Several authorization modes: an action is allowed if one of them allows it.

    Members of system:masters may do everything.
    """

    def __init__(self, modes: Sequence[Authorizer]) -> None:
        self._modes = tuple(modes)

    def __call__(self, attributes: Attributes) -> Decision:
        """Return the first decision that allows, else a denial with the reasons of all modes."""
        if attributes.user.is_master:
            return ALLOWED
        reasons = []
        for mode in self._modes:
            decision = mode(attributes)
            if decision.allowed:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return Decision(False, "\n".join(reasons))

    def rules_for(self, user: User, namespace: str) -> Rules:
        """Return the permissions of all modes together.

        As upstream, members of system:masters get no additional permissions here.
        """
        found = [rules_of(mode, user, namespace) for mode in self._modes]
        faults = [one.fault for one in found if one.fault]
        return Rules(tuple(rule for one in found for rule in one.rules), "; ".join(faults))


MODES: Mapping[str, Authorizer] = {config.ALWAYS_ALLOW: always_allow, config.ALWAYS_DENY: always_deny}
"""Value of ``--authorization-mode`` → its authorizer, for the modes without state."""


def authorizer_of(modes: Sequence[str], roles: Authorizer) -> Authorizer:
    """Return the authorizer of these modes; ``roles`` is the authorizer of RBAC."""
    if modes[0] == config.ALWAYS_ALLOW:
        return always_allow  # later modes would have no effect
    return Modes([MODES.get(mode, roles) for mode in modes])


def is_public(path: str) -> bool:
    """Report whether a client without credentials may read a path."""
    return any(path == public or path.startswith(public + "/") for public in PUBLIC_PATHS)


def denial(attributes: Attributes, reason: str = "") -> StatusError:
    """Return the error of a denied action, with status 403 (ERR-18)."""
    text = _html(f"User {go_quote(attributes.user.name)} cannot {attributes.verb} {_object_text(attributes)}")
    if reason:
        text += f": {reason}"
    if not attributes.resource:
        return StatusError(403, "Forbidden", f"forbidden: {text}", {"name": attributes.name} if attributes.name else {})
    return status.forbidden(GroupResource(attributes.group, attributes.resource), attributes.name, text)


def _object_text(attributes: Attributes) -> str:
    if attributes.at_path:
        return f"path {go_quote(attributes.path)}"
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    where = f"in the namespace {go_quote(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
    return f"resource {go_quote(resource)} in API group {go_quote(attributes.group)} {where}"


def _html(text: str) -> str:
    """Escape &, < and >, as upstream does so that no browser takes the message for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
