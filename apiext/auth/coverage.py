"""Whether the roles that somebody has allow all that a role would give away, and what is lacking (escalation)."""

from collections.abc import Iterator, Sequence

from apiext import limits
from apiext.auth.authorization import Rule
from apiext.auth.rbac import ANY, Role
from apiext.documents.quotes import go_quote


class TooManyPermissions(ValueError):
    """Rules that allow more single things than are compared."""


def uncovered(held: Sequence[Role], wanted: Sequence[Rule]) -> list[Rule]:
    """Return what the wanted rules allow and no role held does, as rules of one group, resource, name or path each.

    Raises TooManyPermissions when the rules would fall into too many of those.
    """
    missing: list[Rule] = []
    if sum(map(_pieces, wanted)) > limits.PERMISSIONS_COMPARED:
        wanted = [rule for rule in wanted if not _held_as_it_is(held, rule)]
        if sum(map(_pieces, wanted)) > limits.PERMISSIONS_COMPARED:
            raise TooManyPermissions(f"rules that allow over {limits.PERMISSIONS_COMPARED} single things")
    for rule in wanted:
        missing += [piece for piece in _broken_down(rule) if not any(_covers(role, piece) for role in held)]
    return missing


def _pieces(rule: Rule) -> int:
    named = len(rule.groups) * len(rule.resources) * max(1, len(rule.names))
    return len(rule.verbs) * (named + len(rule.paths))


def _held_as_it_is(held: Sequence[Role], rule: Rule) -> bool:
    """Whether a role held has the very rule, or everything."""
    whole = Rule(("*",), ("*",), ("*",))
    return any(rule in role.rules or (whole in role.rules and not rule.paths) for role in held)


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
    return role.allows(verb, piece.groups[0], _ways(piece.resources[0]), name)


def _ways(resource: str) -> tuple[str, ...]:
    """Return how a rule held can name what a rule wanted names."""
    _, slash, subresource = resource.partition("/")
    return (resource, f"*/{subresource}", ANY) if slash else (resource, ANY)


def described(rules: Sequence[Rule]) -> list[str]:
    """Return what is lacking as messages list it: verbs on the same thing in one line, lines in order."""
    compact: dict[Rule, list[str]] = {}
    for rule in rules:
        thing = rule if rule.paths else Rule((), rule.groups, rule.resources, names=rule.names)
        compact.setdefault(thing, []).extend(rule.verbs)
    return sorted({_line(thing, verbs) for thing, verbs in compact.items()})


def _line(thing: Rule, verbs: Sequence[str]) -> str:
    parts = (
        ("APIGroups", thing.groups),
        ("Resources", thing.resources),
        ("NonResourceURLs", thing.paths),
        ("ResourceNames", thing.names),
        ("Verbs", thing.verbs if thing.paths else verbs),
    )
    return "{" + ", ".join(f"{name}:{quoted(values)}" for name, values in parts if values) + "}"


def quoted(values: Sequence[str]) -> str:
    """Return texts as Go's %q prints a list of them."""
    return "[" + " ".join(map(go_quote, values)) + "]"
