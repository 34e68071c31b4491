"""What is wrong with a definition's rules: what does not compile, what would cost too much (CEL-001, 008, 011…013)."""

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
from apiext.meta.fields import INTERNAL, INVALID, FieldError, as_many_as_told, child, forbidden, invalid, item
from apiext.schema.cel_types import REQUEST
from apiext.schema.options import STRICT, Options
from apiext.schema.rules import Compiled, Scope, scope_of
from apiext.schema.structural import Rule, Structural

RULE_LIMIT = 10_000_000  # units of one expression on one object, at most (upstream: StaticEstimatedCostLimit)
SCHEMA_LIMIT = 100_000_000  # units of all rules on one object, at most (upstream: StaticEstimatedCRDCostLimit)
_CORRELATED = (None, "granular", "atomic")  # map types whose members are those of the old map
_RULES, _MESSAGE = "x-kubernetes-validations", "messageExpression"
_LISTED = 4  # expressions blamed for the total
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


class _Frugal(Estimator):
    """An estimate that knows how long the texts of numbers and times can be (DIS-19)."""

    def function(
        self, node: Call, overload: Overload, target: Part | None, parts: list[Part], costs: list[Range]
    ) -> CallCost:
        """Return what one overload costs and the size of what it gives."""
        cost, size = super().function(node, overload, target, parts, costs)
        longest = _TEXT_SIZES.get(overload.id)
        return cost, (1, longest) if size is None and longest is not None else size


def usual(program: Program, declared: Declared) -> int:
    """Return upstream's estimate of the most that an expression costs."""
    return Estimator(program.checked, declared).run()[1]


def frugal(program: Program, declared: Declared) -> int:
    """Return an estimate with the true sizes of texts made of numbers and times (DIS-19)."""
    return _Frugal(program.checked, declared).run()[1]


class _Place:
    """A place on the way through a definition: its path, how often it can occur, and what keeps old values apart.

    ``step`` is the end of its path, from the place above on. ``times`` is None when nothing bounds it; ``apart`` is the
    outermost list whose parts cannot be told to belong to old ones. ``typeless`` tells that a place above, with rules
    there or further above, has no type.
    """

    __slots__ = ("_above", "_ruled", "_step", "apart", "scope", "times", "typeless")

    def __init__(
        self, scope: Scope, step: str, times: int | None, apart: "_Place | None", above: "_Place | None" = None
    ) -> None:
        self.scope = scope
        self.times = times
        self.apart = apart
        self._step = step
        self._above = above
        self._ruled: bool = bool(scope.node.rules) or (above is not None and above._ruled)
        self.typeless: bool = (above is not None and above.typeless) or (self._ruled and scope.declared is None)

    @property
    def path(self) -> str:
        """The whole path; made when it is told, since many of them may be long."""
        steps: list[str] = []
        place: _Place | None = self
        while place is not None:
            steps.append(place._step)
            place = place._above
        return "".join(reversed(steps))

    def inside(self) -> "Iterator[_Place]":
        """Yield the places below."""
        scope, node = self.scope, self.scope.node
        most = _most_parts(node)
        times = None if self.times is None or most is None else min(self.times * most, MOST)
        apart = self.apart
        if scope.values is not None:
            yield _Place(scope.values, ".additionalProperties", times, apart, self)
        named = apart or (None if node.map_type in _CORRELATED else self)
        for name, below in scope.properties.items():
            yield _Place(below, item(".properties", name), times, named, self)
        if scope.items is not None:
            apart = apart or (self if node.list_type != "map" else None)
            yield _Place(scope.items, ".items", times, apart, self)

    def cost(self, one: int) -> int:
        """Return what an expression costs here altogether, when once it costs ``one``."""
        times = self.times
        if times is None:
            declared = self.scope.declared
            assert declared is not None
            times = REQUEST // (self.scope.types.least[declared] + 1)
        return min(one * times, MOST)


def _most_parts(node: Structural) -> int | None:
    """Return how many values of one schema below there can be; None when nothing bounds them."""
    if node.type == "object" and node.additional is not None:
        return None if node.max_properties is None else max(node.max_properties, 0)
    if node.type == "array":
        return None if node.max_items is None else max(node.max_items, 0)
    return 1


class _Expression(NamedTuple):
    """Which expression of which rule of a place."""

    place: _Place
    number: int
    name: str

    @property
    def path(self) -> str:
        """The whole path of the expression."""
        return child(item(child(self.place.path, _RULES), self.number), self.name)


class _Costs:
    """Costs of a definition's expressions, in their order, and what is too much of them (CEL-012).

    ``over`` tells of each that is over its own limit.
    """

    __slots__ = ("estimate", "observed", "over")

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        self.observed: list[tuple[_Expression, int]] = []
        self.over: dict[_Expression, str] = {}

    def add(self, place: _Place, made: Compiled, index: int, *, limited: bool) -> None:
        """Reckon with a rule and its message; ``limited``: each must be within its own limit, too."""
        declared = place.scope.declared
        if declared is None or made.program is None:
            return
        cost = place.cost(self.estimate(made.program, declared))
        self._one(cost, _Expression(place, index, "rule"), "estimated rule cost", limited)
        if made.message is not None:
            cost = self.estimate(made.message, declared)
            self._one(cost, _Expression(place, index, _MESSAGE), "estimated messageExpression cost", limited)

    def _one(self, cost: int, which: _Expression, name: str, limited: bool) -> None:
        if limited and cost > RULE_LIMIT:
            self.over[which] = _over(name, cost, RULE_LIMIT)
        self.observed.append((which, cost))

    def total_errors(self, path: str) -> list[FieldError]:
        """Return that all expressions together cost too much."""
        total = min(sum(cost for _, cost in self.observed), MOST)
        if total <= SCHEMA_LIMIT:
            return []
        most = sorted((row for row in self.observed if row[1] >= SCHEMA_LIMIT // 100), key=lambda row: -row[1])
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        blamed = [forbidden(which.path, text) for which, _ in most[:_LISTED]]
        return [*blamed, forbidden(path, _over(name, total, SCHEMA_LIMIT))]


def _over(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {shown} {_HINT}"


class Check:
    """The rules of one schema, compiled for a definition.

    ``path`` is that of the schema; ``broken`` are the nodes with errors of the schema itself, at or above which no rule
    is looked at. ``warned`` tells afterwards whether the definition is only accepted with the estimates of DIS-19.
    """

    def __init__(self, root: Structural, path: str, broken: Sequence[str], options: Options = STRICT) -> None:
        self.path = path
        self.options = options
        self.broken = sorted(broken)
        self.scope = scope_of(root)
        self.warned: list[str] = []
        self._seen: list[tuple[_Place, Compiled | None, int]] = []  # without a rule: a place whose type is missing

    def errors(self) -> list[FieldError]:
        """Return what is wrong with the rules, those of inner places first."""
        if self.scope is None:
            return []
        self._visit(_Place(self.scope, self.path, 1, None))
        costs = self._costs(usual)
        totals = costs.total_errors(self.path)
        if (costs.over or totals) and not self.broken and next(self._told({}), None) is None:
            short = self._costs(frugal)
            if not short.over and not short.total_errors(self.path):
                over = as_many_as_told(forbidden(which.path, _WARNING) for which in costs.over)
                blamed = dict.fromkeys(error.field for error in (*over, *totals) if error.field != self.path)
                self.warned = [f"{path}: {_WARNING}" for path in blamed or (self.path,)]
                return []
        return [*as_many_as_told(self._told(costs.over)), *totals]

    def _costs(self, estimate: Estimate) -> _Costs:
        costs = _Costs(estimate)
        for place, made, index in self._seen:
            if made is not None:
                costs.add(place, made, index, limited=self.options.limited_rules)
        return costs

    def _told(self, over: Mapping[_Expression, str]) -> Iterator[FieldError]:
        """Yield what is wrong with each rule, and that it costs too much, in upstream's order."""
        for place, made, index in self._seen:
            if made is None:
                yield FieldError(INTERNAL, child(place.path, _RULES), f"Internal error: {_NO_TYPE}")
            else:
                yield from _errors(made, place, index, over)

    def _version(self, expression: str) -> str:
        return "stored" if expression in self.options.known_expressions else "new"

    def _visit(self, place: _Place) -> None:
        for below in place.inside():
            self._visit(below)
        if not place.scope.node.rules or (self.broken and self._is_broken(place.path)):
            return
        if place.typeless:
            self._seen.append((place, None, 0))
            return
        for index, made in enumerate(place.scope.compiled(self._version)):
            self._seen.append((place, made, index))

    def _is_broken(self, path: str) -> bool:
        if not self.broken:
            return False
        return self._first_from(path) == path or self._first_from(f"{path}.").startswith(f"{path}.")

    def _first_from(self, text: str) -> str:
        place = bisect_left(self.broken, text)
        return self.broken[place] if place < len(self.broken) else ""


def _errors(made: Compiled, place: _Place, index: int, over: Mapping[_Expression, str]) -> Iterator[FieldError]:
    """Yield what is wrong with a rule; ``over`` says which expressions cost too much."""
    rule, expression, message = made.rule, _Expression(place, index, "rule"), _Expression(place, index, _MESSAGE)
    if expression in over:
        yield forbidden(expression.path, over[expression])
    if made.error:
        yield _of_rule(expression.path, rule, made.error)
    if made.message_error:
        yield _of_rule(message.path, rule, made.message_error)
    if message in over:
        yield forbidden(message.path, over[message])
    if made.uses_old:
        if place.apart is not None:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.apart.path}"
            yield invalid(expression.path, rule.rule, text)
    elif rule.optional_old_self is not None:
        text = "may not be set if oldSelf is not used in rule"
        yield invalid(_Expression(place, index, "optionalOldSelf").path, rule.optional_old_self, text)


def _of_rule(path: str, rule: Rule, detail: str) -> FieldError:
    """Return an error that shows a rule as upstream's internal type prints (DIS-04)."""
    shown = {
        "Rule": rule.rule,
        "Message": rule.message,
        "MessageExpression": rule.message_expression,
        "Reason": rule.reason,
        "FieldPath": rule.field_path,
        "OptionalOldSelf": rule.optional_old_self,
    }
    return FieldError(INVALID, path, f"Invalid value: {go_json(shown)}: {detail}")
