"""Validate the rules of a definition: compile the rules, and estimate their costs.

See CEL-001, 008, 011…013.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from apiext.cel.ast import Call
from apiext.cel.declared import Declared
from apiext.cel.environment import Program
from apiext.cel.estimate import Estimator
from apiext.cel.overloads import Overload
from apiext.cel.ranges import MOST, CallCost, Part, Range
from apiext.documents.go_json import go_json
from apiext.meta.fields import INTERNAL, INVALID, FieldError, as_many_as_shown, child, forbidden, invalid, item
from apiext.schema.cel_types import REQUEST
from apiext.schema.options import STRICT, Options
from apiext.schema.rules import Compiled, Scope, scope_of
from apiext.schema.structural import Rule, Structural

# maximal CEL cost units of one rule on one object, and of one call of a messageExpression (upstream:
# StaticEstimatedCostLimit)
RULE_LIMIT = 10_000_000
SCHEMA_LIMIT = 100_000_000  # maximal CEL cost units of all expressions (upstream: StaticEstimatedCRDCostLimit)
_CORRELATED = (None, "granular", "atomic")  # map types in which a field corresponds to the field of the old map
_RULES, _MESSAGE = "x-kubernetes-validations", "messageExpression"
_MAX_BLAMED = 4  # maximal number of expressions in the error about the total cost
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are"
    " declared)"
)
_NO_TYPE = (
    "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert"
    " structural schema to CEL declarations"
)
_WARNING = (
    "the estimated cost is within the budget only because texts of numbers and times are known to be short; other"
    " servers refuse this definition"
)
_TEXT_SIZES = {
    "int64_to_string": 20, "uint64_to_string": 20, "bool_to_string": 5, "double_to_string": 24,
    "timestamp_to_string": 35, "duration_to_string": 22,
}  # fmt: skip

Estimate = Callable[[Program, Declared], int]


class _CloseEstimator(Estimator):
    """An estimator that knows the maximal lengths of printed numbers and times (DIS-19)."""

    def function(
        self, node: Call, overload: Overload, target: Part | None, parts: list[Part], costs: list[Range]
    ) -> CallCost:
        """Return (cost of a call of one overload, size of its result).

        The size is None if it is unknown.
        """
        cost, size = super().function(node, overload, target, parts, costs)
        longest = _TEXT_SIZES.get(overload.id)
        return cost, (1, longest) if size is None and longest is not None else size


def upstream_estimate(program: Program, declared: Declared) -> int:
    """Return upstream's estimate of the maximal cost of an expression."""
    return Estimator(program.checked, declared).run()[1]


def close_estimate(program: Program, declared: Declared) -> int:
    """Return an estimate that uses the maximal lengths of printed numbers and times (DIS-19)."""
    return _CloseEstimator(program.checked, declared).run()[1]


class _Node:
    """A node of a definition's schema with rules at or below it.

    ``step`` is the last part of its path. ``times`` is the maximal number of its values in an object, None for no
    limit. ``uncorrelated_at`` is the outermost ancestor whose inner values cannot be matched with old values, or None.
    ``typeless`` is true if this node or a node above it has no CEL type, but needs one for rules at or above it.
    """

    __slots__ = ("_above", "_ruled", "_step", "scope", "times", "typeless", "uncorrelated_at")

    def __init__(
        self, scope: Scope, step: str, times: int | None, uncorrelated_at: "_Node | None", above: "_Node | None" = None
    ) -> None:
        self.scope = scope
        self.times = times
        self.uncorrelated_at = uncorrelated_at
        self._step = step
        self._above = above
        self._ruled: bool = bool(scope.node.extensions.rules) or (above is not None and above._ruled)
        self.typeless: bool = (above is not None and above.typeless) or (self._ruled and scope.declared is None)

    @property
    def path(self) -> str:
        """Return the path, computed on demand, since all paths together may be long."""
        steps: list[str] = []
        node: _Node | None = self
        while node is not None:
            steps.append(node._step)
            node = node._above
        return "".join(reversed(steps))

    def inside(self) -> "Iterator[_Node]":
        """Yield the nodes directly below this node."""
        scope, node = self.scope, self.scope.node
        most = _max_values(node)
        times = None if self.times is None or most is None else min(self.times * most, MOST)
        uncorrelated_at = self.uncorrelated_at
        if scope.values is not None:
            yield _Node(scope.values, ".additionalProperties", times, uncorrelated_at, self)
        named = uncorrelated_at or (None if node.extensions.map_type in _CORRELATED else self)
        for name, below in scope.properties.items():
            yield _Node(below, item(".properties", name), times, named, self)
        if scope.items is not None:
            uncorrelated_at = uncorrelated_at or (self if node.extensions.list_type != "map" else None)
            yield _Node(scope.items, ".items", times, uncorrelated_at, self)

    def cost(self, one: int) -> int:
        """Return the cost of an expression for all values of this node, from the cost for one value."""
        times = self.times
        if times is None:
            declared = self.scope.declared
            assert declared is not None
            times = REQUEST // (self.scope.types.least[declared] + 1)
        return min(one * times, MOST)


def _max_values(node: Structural) -> int | None:
    """Return how many values of an inner schema a value of the node can have; None: no limit."""
    if node.type == "object" and node.additional is not None:
        return None if node.sizes.max_properties is None else max(node.sizes.max_properties, 0)
    if node.type == "array":
        return None if node.sizes.max_items is None else max(node.sizes.max_items, 0)
    return 1


class _Expression(NamedTuple):
    """One expression: its node, the index of its rule, and its field in the rule."""

    node: _Node
    number: int
    name: str

    @property
    def path(self) -> str:
        """Return the path of the expression."""
        return child(item(child(self.node.path, _RULES), self.number), self.name)


class _Costs:
    """The estimated costs of a schema's expressions, in their order (CEL-012).

    ``over`` maps each expression that exceeds its own limit to the error text.
    """

    __slots__ = ("estimate", "observed", "over")

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        self.observed: list[tuple[_Expression, int]] = []
        self.over: dict[_Expression, str] = {}

    def add(self, node: _Node, made: Compiled, index: int, *, limited: bool) -> None:
        """Add the costs of a rule and its messageExpression.

        If ``limited`` is true, record in ``over`` each of the two that exceeds RULE_LIMIT.
        """
        declared = node.scope.declared
        if declared is None or made.program is None:
            return
        cost = node.cost(self.estimate(made.program, declared))
        self._one(cost, _Expression(node, index, "rule"), "estimated rule cost", limited)
        if made.message is not None:
            cost = self.estimate(made.message, declared)
            self._one(cost, _Expression(node, index, _MESSAGE), "estimated messageExpression cost", limited)

    def _one(self, cost: int, which: _Expression, name: str, limited: bool) -> None:
        if limited and cost > RULE_LIMIT:
            self.over[which] = _excess(name, cost, RULE_LIMIT)
        self.observed.append((which, cost))

    def total_errors(self, path: str) -> list[FieldError]:
        """Return the errors if all expressions together exceed the limit of the schema."""
        total = min(sum(cost for _, cost in self.observed), MOST)
        if total <= SCHEMA_LIMIT:
            return []
        most = sorted((row for row in self.observed if row[1] >= SCHEMA_LIMIT // 100), key=lambda row: -row[1])
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        blamed = [forbidden(which.path, text) for which, _ in most[:_MAX_BLAMED]]
        return [*blamed, forbidden(path, _excess(name, total, SCHEMA_LIMIT))]


def _excess(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {shown} {_HINT}"


class Check:
    """The compiled rules of one schema, for the validation of its definition.

    ``path`` is the path of the schema. ``broken`` are the paths of nodes with schema errors; rules at or above these
    nodes are not compiled. After ``errors``, ``warned`` has warnings if the rules are too expensive by upstream's
    estimate, but not by the closer estimate of DIS-19, and the schema has no other error.
    """

    def __init__(self, root: Structural, path: str, broken: Sequence[str], options: Options = STRICT) -> None:
        self.path = path
        self.options = options
        self.broken = sorted(broken)
        self.scope = scope_of(root)
        self.warned: list[str] = []
        # (node, compiled rule, index of the rule); None instead of the rule: the node has no CEL type
        self._compiled: list[tuple[_Node, Compiled | None, int]] = []

    def errors(self) -> list[FieldError]:
        """Return the errors of the rules, beginning with the rules of inner nodes."""
        if self.scope is None:
            return []
        self._visit(_Node(self.scope, self.path, 1, None))
        costs = self._costs(upstream_estimate)
        totals = costs.total_errors(self.path)
        if (costs.over or totals) and not self.broken and next(self._rule_errors({}), None) is None:
            short = self._costs(close_estimate)
            if not short.over and not short.total_errors(self.path):
                over = as_many_as_shown(forbidden(which.path, _WARNING) for which in costs.over)
                blamed = dict.fromkeys(error.field for error in (*over, *totals) if error.field != self.path)
                self.warned = [f"{path}: {_WARNING}" for path in blamed or (self.path,)]
                return []
        return [*as_many_as_shown(self._rule_errors(costs.over)), *totals]

    def _costs(self, estimate: Estimate) -> _Costs:
        costs = _Costs(estimate)
        for node, made, index in self._compiled:
            if made is not None:
                costs.add(node, made, index, limited=self.options.limited_rules)
        return costs

    def _rule_errors(self, over: Mapping[_Expression, str]) -> Iterator[FieldError]:
        """Yield the errors of each rule, including excessive costs, in upstream's order."""
        for node, made, index in self._compiled:
            if made is None:
                yield FieldError(INTERNAL, child(node.path, _RULES), f"Internal error: {_NO_TYPE}")
            else:
                yield from _errors(made, node, index, over)

    def _version(self, expression: str) -> str:
        return "stored" if expression in self.options.known_expressions else "new"

    def _visit(self, node: _Node) -> None:
        for below in node.inside():
            self._visit(below)
        if not node.scope.node.extensions.rules or (self.broken and self._is_broken(node.path)):
            return
        if node.typeless:
            self._compiled.append((node, None, 0))
            return
        for index, made in enumerate(node.scope.compiled(self._version)):
            self._compiled.append((node, made, index))

    def _is_broken(self, path: str) -> bool:
        if not self.broken:
            return False
        return self._first_from(path) == path or self._first_from(f"{path}.").startswith(f"{path}.")

    def _first_from(self, text: str) -> str:
        index = bisect_left(self.broken, text)
        return self.broken[index] if index < len(self.broken) else ""


def _errors(made: Compiled, node: _Node, index: int, over: Mapping[_Expression, str]) -> Iterator[FieldError]:
    """Yield the errors of a rule.

    ``over`` maps an expression with an excessive cost to the error text.
    """
    rule, expression, message = made.rule, _Expression(node, index, "rule"), _Expression(node, index, _MESSAGE)
    if expression in over:
        yield forbidden(expression.path, over[expression])
    if made.error:
        yield _invalid_rule(expression.path, rule, made.error)
    if made.message_error:
        yield _invalid_rule(message.path, rule, made.message_error)
    if message in over:
        yield forbidden(message.path, over[message])
    if made.uses_old:
        if node.uncorrelated_at is not None:
            text = (
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {node.uncorrelated_at.path}"
            )
            yield invalid(expression.path, rule.rule, text)
    elif rule.optional_old_self is not None:
        text = "may not be set if oldSelf is not used in rule"
        yield invalid(_Expression(node, index, "optionalOldSelf").path, rule.optional_old_self, text)


def _invalid_rule(path: str, rule: Rule, detail: str) -> FieldError:
    """Return an error that contains a rule as upstream prints its internal type (DIS-04)."""
    shown = {
        "Rule": rule.rule,
        "Message": rule.message,
        "MessageExpression": rule.message_expression,
        "Reason": rule.reason,
        "FieldPath": rule.field_path,
        "OptionalOldSelf": rule.optional_old_self,
    }
    return FieldError(INVALID, path, f"Invalid value: {go_json(shown)}: {detail}")
