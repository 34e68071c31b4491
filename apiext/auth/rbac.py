"""RBAC: an index of the rules of each role, an index of bindings by subject, and decisions.

See AUT-003. This module does no I/O. ``Policy`` caches the grants of a user in a namespace. A change of a role or
binding in the namespace clears the cached grants of the namespace. A change of a cluster role or cluster role binding
clears all cached grants.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from apiext.auth import limits
from apiext.auth.authorization import Attributes, Decision, Rule, Rules
from apiext.auth.user import ACCOUNT_PREFIX, User
from apiext.documents.document import View
from apiext.text.quotes import go_quote

# Estimated memory of one group of a user besides the group's name, in bytes.
GROUP_OVERHEAD = 64

GROUP = "rbac.authorization.k8s.io"
ANY = "*"


class _Row(NamedTuple):
    """A rule without its resources; None in a field matches all values.

    ``most_keys`` is the largest number of index keys that the rule may have.
    """

    verbs: Collection[str] | None
    groups: Collection[str] | None
    names: Collection[str] | None
    most_keys: int

    def allows(self, verb: str, group: str, name: str | None) -> bool:
        """Report whether the rule allows a verb on an object of a group.

        ``name`` None stands for all names.
        """
        return (
            (self.verbs is None or verb in self.verbs)
            and (self.groups is None or group in self.groups)
            and (self.names is None or name in self.names)
        )


_UNUSED = 0  # placeholder in a _Key for a field that the _Shape of the key excludes
_Shape = tuple[bool, bool, bool]  # whether a key contains the name, the verb and the group
# (name, verb, group); the name is None for a rule that matches all names
_Key = tuple[str | int | None, str | int, str | int]
_SHAPES: Sequence[_Shape] = (
    (True, True, True),
    (True, True, False),
    (False, True, True),
    (True, False, True),
    (True, False, False),
    (False, True, False),
    (False, False, True),
    (False, False, False),
)
"""The shapes of index keys; the most selective shapes come first."""


class _Rows:
    """The rules of a role for one resource: a list if they are few, else an index.

    The index keys of a rule combine its names, verbs and groups, or only some of these lists. The shape of the keys is
    the first in ``_SHAPES`` that gives the rule at most ``most_keys`` keys. A look-up reads the rows of a few keys.
    """

    __slots__ = ("_index", "_listed")

    def __init__(self) -> None:
        self._listed: list[_Row] = []
        self._index: dict[_Shape, dict[_Key, list[_Row]]] | None = None

    @property
    def widest(self) -> int:
        """The largest number of rows that a look-up reads for one key."""
        lists = (self._listed, *(rows for keyed in (self._index or {}).values() for rows in keyed.values()))
        return max(map(len, lists))

    def add(self, row: _Row) -> None:
        """Add a rule."""
        if self._index is not None:
            self._key(self._index, row)
            return
        self._listed.append(row)
        if len(self._listed) > limits.RULES_LISTED:
            self._index = {}
            for one in self._listed:
                self._key(self._index, one)
            self._listed = []

    def _key(self, index: dict[_Shape, dict[_Key, list[_Row]]], row: _Row) -> None:
        names, verbs, groups = row.names or (None,), row.verbs or (ANY,), row.groups or (ANY,)
        for shape in _SHAPES:
            by_name, by_verb, by_group = shape
            keys = (len(names) if by_name else 1) * (len(verbs) if by_verb else 1) * (len(groups) if by_group else 1)
            if keys <= row.most_keys:
                break
        keyed = index.setdefault(shape, {})
        for name in names if by_name else (_UNUSED,):
            for verb in verbs if by_verb else (_UNUSED,):
                for group in groups if by_group else (_UNUSED,):
                    keyed.setdefault((name, verb, group), []).append(row)

    def allow(self, verb: str, group: str, name: str | None) -> bool:
        """Report whether a rule allows a verb on an object of a group.

        ``name`` None stands for all names.
        """
        if self._index is None:
            return any(row.allows(verb, group, name) for row in self._listed)
        for (by_name, by_verb, by_group), keyed in self._index.items():
            for one in ((None,) if name is None else (None, name)) if by_name else (_UNUSED,):
                for two in (verb, ANY) if by_verb else (_UNUSED,):
                    for three in (group, ANY) if by_group else (_UNUSED,):
                        for row in keyed.get((one, two, three), ()):
                            if row.allows(verb, group, name):
                                return True
        return False


def _prefix_of(key: str) -> str:
    """Return a key that ends with ``*``, without the ``*``."""
    return key[:-1]


class _Paths:
    """The rules of a role for paths, indexed by path, prefix and verb.

    If a rule has few pairs of path and verb, each pair is a key of the index; else each path is a key.
    """

    __slots__ = ("_depth", "_outer", "_prefixes", "_rows", "_single")

    def __init__(self) -> None:
        self._single: set[tuple[str, str]] = set()  # (path, verb); a path that ends with * is a prefix
        self._rows: dict[str, list[Collection[str]]] = {}  # path → the verbs of each rule
        self._prefixes: list[str] = []  # paths that end with *, sorted without the *
        # for each item of _prefixes, the index of the longest other item that is a prefix of it, or -1
        self._outer: list[int] = []
        self._depth = 0  # largest number of nested prefixes; /a*, /a/b* and /a/b/c* are three

    def __bool__(self) -> bool:
        return bool(self._single or self._rows)

    @property
    def widest(self) -> int:
        """An estimate of the rows and prefixes that a look-up reads.

        It counts all prefixes of a path, but the rows of only one of them.
        """
        return 1 + self._depth + max(map(len, self._rows.values()), default=0)

    def add(self, paths: Sequence[str], verbs: Collection[str]) -> None:
        """Add a rule."""
        keys = {path.rstrip(ANY) + ANY if path.endswith(ANY) else path for path in paths}
        if len(keys) * len(verbs) <= len(keys) + len(verbs):
            self._single.update((path, verb) for path in keys for verb in verbs)
        else:
            for path in keys:
                self._rows.setdefault(path, []).append(verbs)

    def close(self) -> None:
        """Sort the prefixes; the caller calls this once, after it has added all rules."""
        given = dict.fromkeys((*(path for path, _ in self._single), *self._rows))
        self._prefixes = sorted((path for path in given if path.endswith(ANY)), key=_prefix_of)
        around: list[int] = []  # indexes of the prefixes of the current key, the longest last
        for place, key in enumerate(self._prefixes):
            while around and not key.startswith(_prefix_of(self._prefixes[around[-1]])):
                around.pop()
            self._outer.append(around[-1] if around else -1)
            around.append(place)
            self._depth = max(self._depth, len(around))

    def allow(self, verb: str, path: str) -> bool:
        """Report whether a rule allows a verb on a path."""
        if not path.endswith(ANY) and self._has(path, verb):
            return True
        # each key that is a prefix of the path is also a prefix of the last key that does not sort after the path
        place = bisect_right(self._prefixes, path, key=_prefix_of) - 1
        while place >= 0:
            key = self._prefixes[place]
            if path.startswith(_prefix_of(key)) and self._has(key, verb):
                return True
            place = self._outer[place]
        return False

    def _has(self, key: str, verb: str) -> bool:
        if (key, verb) in self._single or (key, ANY) in self._single:
            return True
        return any(verb in verbs or ANY in verbs for verbs in self._rows.get(key, ()))


class Role:
    """The rules of a role, indexed by resource and by path.

    The index needs memory in proportion to the rules. ``widest`` estimates how many rows a look-up reads: it is the
    largest ``widest`` of a resource or of the paths.
    """

    __slots__ = ("_paths", "_resources", "rules", "widest")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._resources: dict[str, _Rows] = {}
        self._paths = _Paths()
        for rule in dict.fromkeys(rules):
            self._paths.add(rule.paths, _few(rule.verbs))
            size = sum(map(len, (rule.verbs, rule.groups, rule.resources, rule.names)))
            most_keys = size // max(1, len(rule.resources))
            row = _Row(_any(rule.verbs), _any(rule.groups), _few(rule.names) or None, most_keys)
            for resource in set(rule.resources):
                self._resources.setdefault(resource, _Rows()).add(row)
        self._paths.close()
        self.widest = max(self._paths.widest, *(rows.widest for rows in self._resources.values()), 1)

    @property
    def has_paths(self) -> bool:
        """Report whether any rule has paths."""
        return bool(self._paths)

    @property
    def has_resources(self) -> bool:
        """Report whether any rule has resources."""
        return bool(self._resources)

    def allows(self, verb: str, group: str, resources: tuple[str, ...], name: str | None) -> bool:
        """Report whether the role allows a verb on a resource; ``name`` None stands for all names.

        ``resources`` are the names by which rules can include the resource (see ``rule_names``).
        """
        for resource in resources:
            rows = self._resources.get(resource)
            if rows is not None and rows.allow(verb, group, name):
                return True
        return False

    def allows_path(self, verb: str, path: str) -> bool:
        """Report whether the role allows a verb on a path."""
        return self._paths.allow(verb, path)


def _any(values: tuple[str, ...]) -> Collection[str] | None:
    return None if ANY in values else _few(values)


def _few(values: tuple[str, ...]) -> Collection[str]:
    """Return the distinct values: a tuple if they are few, since a set takes more memory."""
    return values if len(values) <= 2 and len(set(values)) == len(values) else frozenset(values)


def rule_names(resource: str, subresource: str) -> tuple[str, ...]:
    """Return the names by which a rule can include a resource: its own, and wildcards."""
    if subresource:
        return (f"{resource}/{subresource}", f"*/{subresource}", ANY)
    return (resource, ANY)


class Subject(NamedTuple):
    """A subject of a binding; ``namespace`` is empty except for service accounts."""

    kind: str
    name: str
    namespace: str

    def __str__(self) -> str:
        """Format the subject for the reason of a decision: ``ServiceAccount "name/namespace"``."""
        return f"{self.kind} {go_quote(self.name + '/' + self.namespace if self.kind == ACCOUNT else self.name)}"


USER, USERS, ACCOUNT = "User", "Group", "ServiceAccount"  # kinds of subjects


class Reference(Struct, frozen=True):
    """The reference of a binding to its role; ``namespace`` is empty for a ClusterRole."""

    kind: str
    name: str
    namespace: str = ""

    def missing(self, resource: str) -> str:
        """Return the error message for a missing role.

        As in upstream, ``resource`` depends on the use of the message. For the reason of a denial, it is the kind of
        the role in lower case. For the error of an escalation check, it is the resource of the written object.
        """
        if self.kind not in KINDS:
            return f"unsupported role reference kind: {go_quote(self.kind)}"
        return f"{resource}.{GROUP} {go_quote(self.name)} not found"


KINDS: Mapping[str, str] = {"Role": "roles", "ClusterRole": "clusterroles"}


class Binding(Struct, frozen=True):
    """A binding: its role and subjects; ``namespace`` is empty for a cluster role binding."""

    name: str
    namespace: str
    role: Reference
    subjects: tuple[Subject, ...]

    def reason(self, subject: Subject) -> str:
        """Return the reason of an allowed request: this binding, its role, and the subject."""
        kind, name = ("RoleBinding", f"{self.name}/{self.namespace}") if self.namespace else (_EVERYWHERE, self.name)
        return f"RBAC: allowed by {kind} {go_quote(name)} of {self.role.kind} {go_quote(self.role.name)} to {subject}"


_EVERYWHERE = "ClusterRoleBinding"


class Grants(Struct, frozen=True):
    """The roles of a user in a namespace; ``absent`` are the bound roles that do not exist.

    ``resources`` and ``paths`` are the roles with rules for resources and for paths, each with the decision if the role
    allows a request. ``refusal`` is the decision if no role allows it.
    """

    roles: tuple[Role, ...]
    absent: tuple[Reference, ...]
    resources: tuple[tuple[Role, Decision], ...]
    paths: tuple[tuple[Role, Decision], ...]
    refusal: Decision


class Policy:
    """All roles and bindings, as an authorizer; ``put_…`` and ``remove_…`` apply changes."""

    def __init__(self) -> None:
        # (namespace, name) → role; the namespace of a cluster role is empty
        self._roles: dict[tuple[str, str], Role] = {}
        self._bindings: dict[tuple[str, str], Binding] = {}
        # namespace → user or group → name of the binding → position of the subject
        self._bound: dict[str, dict[str, dict[str, int]]] = {}
        self._grants: dict[str, dict[tuple[str, tuple[str, ...]], Grants]] = {}  # namespace → (user, groups) → grants
        self._cached = 0
        self.settled: Callable[[], Awaitable[None]] = _at_once
        """Waits until this policy has applied all changes in the cache; a thread may still decode a large role."""

    # -- changes

    def put_role(self, namespace: str, name: str, role: Role) -> None:
        """Add or replace a role; ``namespace`` is empty for a cluster role."""
        self._roles[namespace, name] = role
        self._invalidate(namespace)

    def remove_role(self, namespace: str, name: str) -> None:
        """Remove a role."""
        self._roles.pop((namespace, name), None)
        self._invalidate(namespace)

    def put_binding(self, namespace: str, name: str, binding: Binding) -> None:
        """Add or replace a binding; ``namespace`` is empty for a cluster role binding."""
        self.remove_binding(namespace, name)
        self._bindings[namespace, name] = binding
        bound = self._bound.setdefault(namespace, {})
        for position, subject in enumerate(binding.subjects):
            for token in _tokens_of(subject):
                bound.setdefault(token, {}).setdefault(name, position)

    def remove_binding(self, namespace: str, name: str) -> None:
        """Remove a binding."""
        self._invalidate(namespace)
        binding = self._bindings.pop((namespace, name), None)
        if binding is None:
            return
        bound = self._bound.get(namespace, {})
        for subject in binding.subjects:
            for token in _tokens_of(subject):
                names = bound.get(token, {})
                names.pop(name, None)
                if not names:
                    bound.pop(token, None)
        if not bound:
            self._bound.pop(namespace, None)

    def _invalidate(self, namespace: str) -> None:
        """Clear the cached grants of a namespace, or all cached grants if the namespace is empty."""
        if namespace:
            self._cached -= len(self._grants.pop(namespace, ()))
        else:
            self._grants.clear()
            self._cached = 0

    # -- decisions

    def names_group(self, group: str, namespace: str) -> bool:
        """Report whether a role binding of the namespace or of the whole cluster names the group."""
        token = f"{USERS}/{group}"
        return any(token in self._bound.get(place, ()) for place in ("", namespace))

    def __call__(self, attributes: Attributes) -> Decision:
        """Return the decision about a request."""
        grants = self.grants(attributes.user, attributes.namespace)
        verb = attributes.verb
        if attributes.at_path:
            for role, decision in grants.paths:
                if role.allows_path(verb, attributes.path):
                    return decision
            return grants.refusal
        group, name = attributes.group, attributes.name
        resources = rule_names(attributes.resource, attributes.subresource)
        for role, decision in grants.resources:
            if role.allows(verb, group, resources, name):
                return decision
        return grants.refusal

    def rules_for(self, user: User, namespace: str) -> Rules:
        """Return the permissions of a user in a namespace."""
        grants = self.grants(user, namespace)
        rules = tuple(rule for role in grants.roles for rule in role.rules)
        return Rules(rules, grants.refusal.reason.removeprefix(_PREFIX))

    def role(self, reference: Reference) -> Role | None:
        """Return the role of a reference, None if it does not exist."""
        if reference.kind not in KINDS:
            return None
        return self._roles.get((reference.namespace, reference.name))

    def grants(self, user: User, namespace: str) -> Grants:
        """Return the grants of a user in a namespace.

        The roles of cluster role bindings come first, then those of role bindings. Both are sorted by the names of the
        bindings.
        """
        if namespace not in self._bound:
            namespace = ""
        key = (user.name, user.groups)
        kept = self._grants.get(namespace)
        found = kept.get(key) if kept is not None else None
        if found is None:
            found = self._find(user, namespace)
            if _size(user) <= limits.GRANT_BYTES:
                if self._cached >= limits.GRANTS_CACHED:
                    self._invalidate("")
                self._grants.setdefault(namespace, {})[key] = found
                self._cached += 1
        return found

    def _find(self, user: User, namespace: str) -> Grants:
        roles: list[tuple[Role, Decision]] = []
        absent: list[Reference] = []
        for binding, subject in self._bindings_of(user, namespace):
            role = self.role(binding.role)
            if role is None:
                absent.append(binding.role)
            else:
                roles.append((role, Decision(True, binding.reason(subject))))
        return Grants(
            tuple(role for role, _ in roles),
            tuple(absent),
            tuple(one for one in roles if one[0].has_resources),
            tuple(one for one in roles if one[0].has_paths),
            _refusal(absent),
        )

    def _bindings_of(self, user: User, namespace: str) -> Iterator[tuple[Binding, Subject]]:
        tokens = [f"{USER}/{user.name}", *(f"{USERS}/{group}" for group in user.groups)]
        for place in ("", namespace) if namespace else ("",):
            bound = self._bound.get(place, {})
            first: dict[str, int] = {}
            for token in tokens:
                for name, position in bound.get(token, {}).items():
                    first[name] = min(position, first.get(name, position))
            for name in sorted(first):
                binding = self._bindings[place, name]
                yield binding, binding.subjects[first[name]]


async def _at_once() -> None:
    """Return immediately: ``Policy`` has applied each change already."""


def _size(user: User) -> int:
    """Return the approximate memory of a user's name and groups in bytes."""
    return len(user.name) + sum(map(len, user.groups)) + GROUP_OVERHEAD * len(user.groups)


_PREFIX = "RBAC: "


def _refusal(absent: list[Reference]) -> Decision:
    """Return the denial for requests that no rule allows; its reason names the missing roles."""
    texts = list(dict.fromkeys(one.missing(one.kind.lower()) for one in absent))
    if not texts:
        return Decision(False)
    return Decision(False, _PREFIX + (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"))


def _tokens_of(subject: Subject) -> tuple[str, ...]:
    """Return the index keys of a subject, such as ``User/alice``.

    The result is empty for a subject that no user can match.
    """
    if subject.kind in (USER, USERS):
        return (f"{subject.kind}/{subject.name}",)
    if subject.kind == ACCOUNT and subject.namespace:
        return (f"{USER}/{ACCOUNT_PREFIX}{subject.namespace}:{subject.name}",)
    return ()


def rules_in(document: View) -> tuple[Rule, ...]:
    """Return the rules of a role's document."""
    return tuple(iter_rules(document))


def iter_rules(document: View) -> Iterator[Rule]:
    """Yield the rules of a role's document."""
    return (rule_in(rule) for rule in document.get("rules") or ())


def rule_in(rule: View) -> Rule:
    """Return a rule of a role's document."""
    return Rule(*(tuple(rule.get(field) or ()) for field in _FIELDS))


def document_of(rule: Rule) -> dict[str, list[str]]:
    """Return a rule in the form of a role's document."""
    values = (rule.verbs, rule.groups, rule.resources, rule.paths, rule.names)
    return {field: list(given) for field, given in zip(_FIELDS, values, strict=True) if given}


_FIELDS = ("verbs", "apiGroups", "resources", "nonResourceURLs", "resourceNames")


def role_in(document: View) -> Role:
    """Return the role of a document.

    Raises AttributeError or TypeError for a malformed document.
    """
    return Role(rules_in(document))


def reference_in(document: View, namespace: str) -> Reference:
    """Return the reference to the role in a binding's document."""
    given = document.get("roleRef") or {}
    kind = _text(given, "kind")
    return Reference(kind, _text(given, "name"), namespace if kind == "Role" else "")


def _text(document: View, field: str) -> str:
    """Return a field that is a string, empty if it is absent; raises TypeError for another type."""
    value = document.get(field) or ""
    if not isinstance(value, str):
        raise TypeError(f"{field} is no string")
    return value


def binding_in(namespace: str, name: str, document: View) -> Binding:
    """Return the binding of a document.

    A service account without a namespace gets the namespace of the binding. Raises AttributeError or TypeError for a
    malformed document.
    """
    subjects = tuple(
        Subject(
            _text(one, "kind"),
            _text(one, "name"),
            (_text(one, "namespace") or namespace) if one.get("kind") == ACCOUNT else "",
        )
        for one in document.get("subjects") or ()
    )
    return Binding(name, namespace, reference_in(document, namespace), subjects)
