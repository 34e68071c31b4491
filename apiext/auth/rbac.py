"""What roles and bindings allow: rules indexed once for each role, bindings by whom they are for (AUT-003).

Pure: documents go in, decisions come out. What was found out about a user in a namespace is remembered until a role or
binding changes, so that a check is a few look-ups.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apiext import limits
from apiext.auth.authorization import Attributes, Decision, Rule, Rules
from apiext.auth.user import ACCOUNT_PREFIX, User
from apiext.documents.document import View
from apiext.documents.quotes import go_quote

GROUP = "rbac.authorization.k8s.io"
ANY = "*"


class _Row(NamedTuple):
    """A rule without its resources, names or paths; None is any."""

    verbs: frozenset[str] | None
    groups: frozenset[str] | None


class Role:
    """The rules of a role, found by resource and name, or by path.

    ``widest`` is the number of rules that are looked at for one of these, at most.
    """

    __slots__ = ("_exact", "_prefixes", "_resources", "rules", "widest")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self._resources: dict[str, dict[str | None, list[_Row]]] = {}  # by name, None: any
        self._exact: dict[str, list[_Row]] = {}
        self._prefixes: list[tuple[str, _Row]] = []
        for rule in rules:
            row = _Row(_set(rule.verbs), _set(rule.groups))
            for resource in set(rule.resources):
                named = self._resources.setdefault(resource, {})
                for name in set(rule.names) or (None,):
                    named.setdefault(name, []).append(row)
            for path in rule.paths:
                if path.endswith(ANY):
                    self._prefixes.append((path.rstrip(ANY), row))
                else:
                    self._exact.setdefault(path, []).append(row)
        lists = [*(rows for named in self._resources.values() for rows in named.values()), *self._exact.values()]
        self.widest = max([len(self._prefixes), *map(len, lists)])

    @property
    def has_paths(self) -> bool:
        """Whether any rule is about paths."""
        return bool(self._exact or self._prefixes)

    @property
    def has_resources(self) -> bool:
        """Whether any rule is about resources."""
        return bool(self._resources)

    def allows(self, verb: str, group: str, resources: tuple[str, ...], name: str | None) -> bool:
        """Whether a verb is allowed on a resource, under any name when ``name`` is None.

        ``resources`` are the ways in which rules can name the resource (see ``ways``).
        """
        for resource in resources:
            named = self._resources.get(resource)
            if named is None:
                continue
            rows: Sequence[_Row] = named.get(None, ())
            if name is not None and name in named:
                rows = (*rows, *named[name])
            for verbs, groups in rows:
                if (verbs is None or verb in verbs) and (groups is None or group in groups):
                    return True
        return False

    def allows_path(self, verb: str, path: str) -> bool:
        """Whether a verb is allowed on a path."""
        for row in self._exact.get(path, ()):
            if row.verbs is None or verb in row.verbs:
                return True
        return any(
            (row.verbs is None or verb in row.verbs) and path.startswith(prefix) for prefix, row in self._prefixes
        )


def _set(values: tuple[str, ...]) -> frozenset[str] | None:
    return None if ANY in values else frozenset(values)


def ways(resource: str, subresource: str) -> tuple[str, ...]:
    """Return how a rule can name a resource: itself, its subresource of all resources, everything."""
    if subresource:
        return (f"{resource}/{subresource}", f"*/{subresource}", ANY)
    return (resource, ANY)


class Subject(NamedTuple):
    """Whom a binding is for."""

    kind: str
    name: str
    namespace: str

    def __str__(self) -> str:
        """Return the subject as reasons name it."""
        return f"{self.kind} {go_quote(self.name + '/' + self.namespace if self.kind == ACCOUNT else self.name)}"


USER, USERS, ACCOUNT = "User", "Group", "ServiceAccount"  # kinds of subjects


@dataclass(frozen=True, slots=True)
class Reference:
    """Which role a binding gives; ``namespace`` is that of a Role."""

    kind: str
    name: str
    namespace: str = ""

    def missing(self, resource: str) -> str:
        """Return what is said of a role that is not there; upstream: of its kind, or of the resource of the request."""
        if self.kind not in KINDS:
            return f"unsupported role reference kind: {go_quote(self.kind)}"
        return f"{resource}.{GROUP} {go_quote(self.name)} not found"


KINDS: Mapping[str, str] = {"Role": "roles", "ClusterRole": "clusterroles"}


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding: which role it gives to whom; ``namespace`` is empty for all of them."""

    name: str
    namespace: str
    role: Reference
    subjects: tuple[Subject, ...]

    def reason(self, subject: Subject) -> str:
        """Return why something was allowed."""
        kind, name = ("RoleBinding", f"{self.name}/{self.namespace}") if self.namespace else (_EVERYWHERE, self.name)
        return f"RBAC: allowed by {kind} {go_quote(name)} of {self.role.kind} {go_quote(self.role.name)} to {subject}"


_EVERYWHERE = "ClusterRoleBinding"


@dataclass(frozen=True, slots=True)
class Grants:
    """The roles that a user has in a namespace, and those that are bound and not there."""

    roles: tuple[Role, ...]
    absent: tuple[Reference, ...]
    resources: tuple[tuple[Role, Decision], ...]
    paths: tuple[tuple[Role, Decision], ...]
    refusal: Decision


class Policy:
    """All roles and bindings there are, as an authorizer; ``put`` and ``remove`` follow their changes."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, str], Role] = {}  # namespace ("" for cluster roles) and name
        self._bindings: dict[tuple[str, str], Binding] = {}
        # namespace → user or group → name of the binding → which of its subjects that is
        self._bound: dict[str, dict[str, dict[str, int]]] = {}
        self._grants: dict[tuple[str, tuple[str, ...], str], Grants] = {}

    # -- following

    def put_role(self, namespace: str, name: str, document: View) -> None:
        """Take a role, or a cluster role (no namespace), new or changed."""
        self._roles[namespace, name] = Role(rules_in(document))
        self._grants.clear()

    def remove_role(self, namespace: str, name: str) -> None:
        """Forget a role."""
        self._roles.pop((namespace, name), None)
        self._grants.clear()

    def put_binding(self, namespace: str, name: str, document: View) -> None:
        """Take a binding, or a cluster role binding (no namespace), new or changed."""
        self.remove_binding(namespace, name)
        binding = binding_in(namespace, name, document)
        self._bindings[namespace, name] = binding
        bound = self._bound.setdefault(namespace, {})
        for position, subject in enumerate(binding.subjects):
            for token in _tokens_of(subject):
                bound.setdefault(token, {}).setdefault(name, position)

    def remove_binding(self, namespace: str, name: str) -> None:
        """Forget a binding."""
        self._grants.clear()
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

    # -- asking

    def __call__(self, attributes: Attributes) -> Decision:
        """Judge a request."""
        grants = self.grants(attributes.user, attributes.namespace)
        verb = attributes.verb
        if attributes.at_path:
            for role, decision in grants.paths:
                if role.allows_path(verb, attributes.path):
                    return decision
            return grants.refusal
        group, name = attributes.group, attributes.name
        resources = ways(attributes.resource, attributes.subresource)
        for role, decision in grants.resources:
            if role.allows(verb, group, resources, name):
                return decision
        return grants.refusal

    def rules_for(self, user: User, namespace: str) -> Rules:
        """Return what a user may do in a namespace."""
        grants = self.grants(user, namespace)
        rules = tuple(rule for role in grants.roles for rule in role.rules)
        return Rules(rules, grants.refusal.reason.removeprefix(_PREFIX))

    def role(self, reference: Reference) -> Role | None:
        """Return the role that a binding means, None when it is not there."""
        if reference.kind not in KINDS:
            return None
        return self._roles.get((reference.namespace, reference.name))

    def grants(self, user: User, namespace: str) -> Grants:
        """Return the roles that a user has in a namespace, those for all namespaces first, by name of the binding."""
        if namespace not in self._bound:
            namespace = ""
        key = (user.name, user.groups, namespace)
        found = self._grants.get(key)
        if found is None:
            found = self._find(user, namespace)
            if _size(user) <= limits.GRANT_BYTES:
                if len(self._grants) >= limits.GRANTS_KEPT:
                    self._grants.clear()
                self._grants[key] = found
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


def _size(user: User) -> int:
    """Return about how many bytes a user's name and groups take."""
    return len(user.name) + sum(map(len, user.groups)) + limits.GROUP_OVERHEAD * len(user.groups)


_PREFIX = "RBAC: "


def _refusal(absent: list[Reference]) -> Decision:
    """Return the decision about what no rule allows: it says which roles were not there."""
    texts = list(dict.fromkeys(one.missing(one.kind.lower()) for one in absent))
    if not texts:
        return Decision(False)
    return Decision(False, _PREFIX + (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"))


def _tokens_of(subject: Subject) -> tuple[str, ...]:
    """Return what a user must be or have for a subject to be meant; nothing for one that nobody can be."""
    if subject.kind in (USER, USERS):
        return (f"{subject.kind}/{subject.name}",)
    if subject.kind == ACCOUNT and subject.namespace:
        return (f"{USER}/{ACCOUNT_PREFIX}{subject.namespace}:{subject.name}",)
    return ()


def rules_in(document: View) -> tuple[Rule, ...]:
    """Return the rules of a role's document."""
    return tuple(rule_in(rule) for rule in document.get("rules") or ())


def rule_in(rule: View) -> Rule:
    """Return a rule of a role's document."""
    return Rule(*(tuple(rule.get(field) or ()) for field in _FIELDS))


def document_of(rule: Rule) -> dict[str, list[str]]:
    """Return a rule as a role's document has it."""
    values = (rule.verbs, rule.groups, rule.resources, rule.paths, rule.names)
    return {field: list(given) for field, given in zip(_FIELDS, values, strict=True) if given}


_FIELDS = ("verbs", "apiGroups", "resources", "nonResourceURLs", "resourceNames")


def reference_in(document: View, namespace: str) -> Reference:
    """Return the role that a binding's document gives in its namespace."""
    given = document.get("roleRef") or {}
    kind = given.get("kind", "")
    return Reference(kind, given.get("name", ""), namespace if kind == "Role" else "")


def binding_in(namespace: str, name: str, document: View) -> Binding:
    """Return the binding of a document; service accounts without a namespace are those of the binding's."""
    subjects = tuple(
        Subject(
            one.get("kind", ""),
            one.get("name", ""),
            (one.get("namespace") or namespace) if one.get("kind") == ACCOUNT else "",
        )
        for one in document.get("subjects") or ()
    )
    return Binding(name, namespace, reference_in(document, namespace), subjects)
