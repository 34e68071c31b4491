"""May you: the attributes of a request and the modes that judge them (AUT-003, ERR-18)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape

from apiext.auth.user import User
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError

PUBLIC_PATHS = ("/healthz", "/livez", "/readyz", "/version")
"""Paths anybody may GET, and everything below them (upstream's public-info rule)."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a user wants to do; ``resource`` is empty for a path that is no resource."""

    user: User
    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


Authorizer = Callable[[Attributes], bool]
"""Whether a request may go on."""


def always_allow(attributes: Attributes) -> bool:
    """Allow everybody who got past authentication."""
    return True


def always_deny(attributes: Attributes) -> bool:
    """Allow the masters only."""
    return attributes.user.is_master


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that a user may do: verbs on resources of groups, or on paths."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


EVERYTHING = (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))


def rules_of(authorizer: Authorizer, user: User, namespace: str) -> tuple[Rule, ...]:
    """Return what a user may do in a namespace, as the authorizer that judges requests sees it."""
    if authorizer is always_allow or user.is_master:
        return EVERYTHING
    return ()


MODES: Mapping[str, Authorizer] = {"AlwaysAllow": always_allow, "AlwaysDeny": always_deny}
"""The values of ``--authorization-mode`` that mean something here."""


def is_public(path: str) -> bool:
    """Whether a path is answered without credentials."""
    return any(path == public or path.startswith(public + "/") for public in PUBLIC_PATHS)


def denial(attributes: Attributes) -> StatusError:
    """Return the 403 of a request that was refused (ERR-18)."""
    user = _html(attributes.user.name)
    if not attributes.resource:
        return StatusError(
            403,
            "Forbidden",
            f'forbidden: User "{user}" cannot {attributes.verb} path "{_html(attributes.path)}"',
            {},
        )
    resource = _html(attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else ""))
    where = f'in the namespace "{_html(attributes.namespace)}"' if attributes.namespace else "at the cluster scope"
    text = (
        f'User "{user}" cannot {attributes.verb} resource "{resource}" in API group "{_html(attributes.group)}" {where}'
    )
    return status.forbidden(
        GroupResource(_html(attributes.group), _html(attributes.resource)), _html(attributes.name), text
    )


def _html(text: str) -> str:
    return escape(text, quote=False)
