"""Matching of writes and hooks: rules, scope, selectors, equivalent resources (ADM-005).

Hooks are webhooks and policies. A Form says in which group and version a hook receives the objects of a write (see
attributes.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from apiext.admission import limits
from apiext.admission.attributes import NAMESPACES, Attributes, Form, form_of
from apiext.documents.document import View
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.selectors import EVERYTHING, LabelSelector, SelectorError
from apiext.scheduling.loop_budget import collect

T = TypeVar("T")


class Rule(Struct, frozen=True):
    """Operations on resources. ``resources`` are (resource, subresource).

    ``*`` matches every value of a field, except in ``names``; empty ``names`` match every name.
    """

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str = "*"
    names: frozenset[str] = frozenset()

    def matches(self, attributes: Attributes, group: str, version: str) -> bool:
        """Report whether the rule would match a write if the write went to this group and version."""
        return (
            not self.operations.isdisjoint((attributes.operation, "*"))
            and not self.groups.isdisjoint((group, "*"))
            and not self.versions.isdisjoint((version, "*"))
            and self._has_resource(attributes.resource.resource, attributes.subresource)
            and (self.scope == "*" or self._in_scope(attributes))
            and (not self.names or attributes.name in self.names)
        )

    def may_match(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Report whether the rule can match a write to a resource.

        The versions, the scope and the names of the rule are ignored.
        """
        return (
            not self.operations.isdisjoint((operation, "*"))
            and not self.groups.isdisjoint((resource.group, "*"))
            and self._has_resource(resource.resource, subresource)
        )

    def _has_resource(self, resource: str, subresource: str) -> bool:
        for res, sub in self.resources:  # noqa: SIM110 (runs for each write; any() takes twice as long)
            if res in ("*", resource) and sub in ("*", subresource):
                return True
        return False

    def _in_scope(self, attributes: Attributes) -> bool:
        namespaced = attributes.resource != NAMESPACES and bool(attributes.namespace)
        return namespaced == (self.scope == "Namespaced")


def rule_of(document: Mapping[str, Any]) -> Rule:
    """Return a v1 RuleWithOperations or NamedRuleWithOperations as a Rule."""
    resources = tuple((res, sub) for res, _, sub in (name.partition("/") for name in document.get("resources") or ()))
    return Rule(
        frozenset(document.get("operations") or ()),
        frozenset(document.get("apiGroups") or ()),
        frozenset(document.get("apiVersions") or ()),
        resources,
        document.get("scope") or "*",
        frozenset(document.get("resourceNames") or ()),
    )


class Criteria(Struct, frozen=True):
    """The matching part of a hook.

    The hook does not match a write that a rule of ``excluded`` matches. If ``equivalent`` is true, rules are also
    compared with the other versions of the resource and the equivalent resources. A selector (``by_namespace``,
    ``by_object``) that is invalid is the text of its error. Criteria without rules match all writes if
    ``any_resource`` is true; otherwise they match no write.
    """

    rules: tuple[Rule, ...]
    excluded: tuple[Rule, ...] = ()
    equivalent: bool = True
    by_namespace: LabelSelector | str = EVERYTHING
    by_object: LabelSelector | str = EVERYTHING
    any_resource: bool = False

    def form(self, attributes: Attributes) -> Form | None:
        """Return the Form in which the hook matches the write, None if it does not match."""
        if self.excluded and _form(self.excluded, attributes, self.equivalent) is not None:
            return None
        if self.any_resource and not self.rules:
            return attributes.form
        return _form(self.rules, attributes, self.equivalent)

    def may_match(self, attributes: Attributes) -> bool:
        """Report whether a write with this operation and resource may match.

        ``excluded`` and the selectors are ignored.
        """
        if self.any_resource and not self.rules:
            return True
        if self.equivalent and attributes.definition is not None and attributes.definition.equivalents:
            return True
        resource, subresource = attributes.resource, attributes.subresource
        return any(rule.may_match(attributes.operation, resource, subresource) for rule in self.rules)

    def selects_object(self, new: View | None, old: View | None) -> bool:
        """Report whether the object selector matches the new or the old labels.

        Raise 500 for an invalid selector.
        """
        selector = _readable(self.by_object)
        if selector.empty:
            return True
        return any(selector.matches(labels_of(document)) for document in (new, old) if document is not None)

    def needs_namespace(self, attributes: Attributes) -> bool:
        """Report whether the namespace selector must be evaluated for the write."""
        if not attributes.namespace and attributes.resource.resource != NAMESPACES.resource:
            return False  # upstream: an object without a namespace always matches, unless its resource is namespaces
        return isinstance(self.by_namespace, str) or not self.by_namespace.empty

    def selects_namespace(self, labels: Mapping[str, str]) -> bool:
        """Report whether the namespace selector matches these labels.

        Raise 500 for an invalid selector.
        """
        return _readable(self.by_namespace).matches(labels)


class Candidates(Generic[T]):
    """The hooks that may match writes to a resource, cached until the configuration changes.

    The cache makes the cost of a write independent of the number of hooks for other resources.
    """

    __slots__ = ("_cached", "_criteria", "_hooks", "_numbered")

    def __init__(self, criteria: Callable[[T], Criteria]) -> None:
        self._criteria = criteria
        self._hooks: tuple[T, ...] = ()
        self._numbered: tuple[tuple[int, T], ...] = ()  # (index, hook); all cached sequences share these pairs
        self._cached: dict[tuple[object, ...], Sequence[tuple[int, T]]] = {}

    async def among(self, hooks: tuple[T, ...], attributes: Attributes) -> Sequence[tuple[int, T]]:
        """Return the hooks that may match the write, each as (index in ``hooks``, hook)."""
        if hooks is not self._hooks:
            self._hooks, self._numbered, self._cached = hooks, tuple(enumerate(hooks)), {}
        definition = attributes.definition
        equals = definition is not None and bool(definition.equivalents)
        key = (attributes.operation, attributes.resource, attributes.subresource, equals)
        found = self._cached.get(key)
        if found is None:
            cached = self._cached  # a change of the configuration may replace self._cached during the await
            found = await collect(self._numbered, lambda one: self._criteria(one[1]).may_match(attributes))
            if len(cached) >= limits.WRITES_MATCHED:
                cached.clear()
            cached[key] = found
        return found


def selector_of(document: Mapping[str, Any] | None) -> LabelSelector | str:
    """Return a v1 LabelSelector, or the text of its error."""
    try:
        return LabelSelector.from_document(document or {})
    except SelectorError as error:
        return str(error)


def _readable(selector: LabelSelector | str) -> LabelSelector:
    if isinstance(selector, str):
        raise status.internal(selector)
    return selector


def labels_of(document: View) -> Mapping[str, str]:
    """Return the labels of an object."""
    return (document.get("metadata") or {}).get("labels") or {}


def _form(rules: Sequence[Rule], attributes: Attributes, equivalent: bool) -> Form | None:
    """Return the Form that a rule matches, None if there is none.

    The rules are first compared with the group and version of the request. With ``equivalent``, they are then compared
    with the other versions and the equivalent resources.
    """
    group, version = attributes.resource.group, attributes.version
    for rule in rules:
        if rule.matches(attributes, group, version):
            return attributes.form
    definition = attributes.definition
    if not equivalent or definition is None:
        return None
    versions = definition.all_versions or definition.versions  # upstream: versions that are not served match, too
    if len(versions) == 1 and not definition.equivalents:
        return None
    others = [served for name, served in versions.items() if name != version]
    for rule in rules:
        for served in (*others, *definition.equivalents):
            if rule.matches(attributes, served.names.group, served.names.version):
                found = form_of(served, attributes.subresource)
                if found is not None:
                    return found
    return None
