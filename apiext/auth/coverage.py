"""Escalation check: compare the permissions that a role grants with those of its writer."""

from collections.abc import Iterator, Sequence

from apiext.auth import limits
from apiext.auth.authorization import Rule
from apiext.auth.rbac import ANY, Role
from apiext.text.quotes import go_quote


class TooManyPermissions(ValueError):
    """The error of rules that have too many permissions to compare."""


def uncovered(held: Sequence[Role], wanted: Sequence[Rule]) -> list[Rule]:
    """Return the wanted permissions that no held role grants, split into single permissions.

    A single permission is a rule with one verb and one path, or with one verb, group, resource and at most one name.
    Raises TooManyPermissions if limits are exceeded.
    """
    return [piece for piece in uncovering(held, wanted) if piece is not None]


def uncovering(held: Sequence[Role], wanted: Sequence[Rule]) -> Iterator[Rule | None]:
    """Yield each wanted permission that no held role grants; yield None after other steps.

    So the caller can yield to the event loop between two steps. Raises TooManyPermissions if limits are exceeded.
    """
    pieces = 0
    for rule in wanted:
        pieces += _pieces(rule)
        yield None
    if pieces > limits.PERMISSIONS_COMPARED:
        known = set[Rule]()
        for role in held:
            for rule in role.rules:
                known.add(rule)
                yield None
        everything = Rule(("*",), ("*",), ("*",)) in known
        wanted = [rule for rule in wanted if rule not in known and not (everything and not rule.paths)]
        pieces = sum(map(_pieces, wanted))
        if pieces > limits.PERMISSIONS_COMPARED:
            raise TooManyPermissions(f"the rules have over {limits.PERMISSIONS_COMPARED} single permissions")
    if pieces * sum(1 + role.widest for role in held) > limits.PERMISSION_COMPARISONS:
        raise TooManyPermissions("too many rules to compare with those of the writer")
    for rule in wanted:
        for piece in _broken_down(rule):
            yield None if any(_covers(role, piece) for role in held) else piece


def _pieces(rule: Rule) -> int:
    named = len(rule.groups) * len(rule.resources) * max(1, len(rule.names))
    return len(rule.verbs) * (named + len(rule.paths))


def _broken_down(rule: Rule) -> Iterator[Rule]:
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                if not rule.names:
                    yield Rule((verb,), (group,), (resource,))
                for name in rule.names:
                    yield Rule((verb,), (group,), (resource,), names=(name,))
    for path in rule.paths:
        for verb in rule.verbs:
            yield Rule((verb,), paths=(path,))


def _covers(role: Role, piece: Rule) -> bool:
    (verb,) = piece.verbs
    if piece.paths:
        return role.allows_path(verb, piece.paths[0])
    name = piece.names[0] if piece.names else None
    return role.allows(verb, piece.groups[0], _held_names(piece.resources[0]), name)


def _held_names(resource: str) -> tuple[str, ...]:
    """Return the names that include a wanted resource: ``pods/log``, ``*/log`` and ``*``."""
    _, slash, subresource = resource.partition("/")
    return (resource, f"*/{subresource}", ANY) if slash else (resource, ANY)


def described(rules: Sequence[Rule]) -> list[str]:
    """Format missing permissions for a message, as sorted lines.

    A line has one group, resource and name with all its missing verbs, or one path with one verb.
    """
    compact: dict[Rule, list[str]] = {}
    for rule in rules:
        target = rule if rule.paths else Rule((), rule.groups, rule.resources, names=rule.names)
        compact.setdefault(target, []).extend(rule.verbs)
    return sorted({_line(target, verbs) for target, verbs in compact.items()})


def _line(target: Rule, verbs: Sequence[str]) -> str:
    parts = (
        ("APIGroups", target.groups),
        ("Resources", target.resources),
        ("NonResourceURLs", target.paths),
        ("ResourceNames", target.names),
        ("Verbs", target.verbs if target.paths else verbs),
    )
    return "{" + ", ".join(f"{name}:{quoted(values)}" for name, values in parts if values) + "}"


def quoted(values: Sequence[str]) -> str:
    """Format strings as Go's %q does for a list."""
    return "[" + " ".join(map(go_quote, values)) + "]"
