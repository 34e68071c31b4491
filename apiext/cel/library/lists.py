"""CEL functions on lists: Kubernetes' library, and cel-go's extension ``lists``, version 3."""

from functools import cmp_to_key

from apiext.cel import limits
from apiext.cel.arithmetic import add
from apiext.cel.costs import TRAVERSE, TRAVERSE_ANY, Cost, list_made, list_made_estimated
from apiext.cel.effort import spend, spend_comparisons
from apiext.cel.go_values import go_type
from apiext.cel.macros import LISTS
from apiext.cel.overloads import Implement, Library, Overload, row, with_flags
from apiext.cel.ranges import MOST, TRAVERSAL, CallCost, CallSizes, Part, multiply
from apiext.cel.values import (
    COMPARABLE,
    Broken,
    Duration,
    Fault,
    Timestamp,
    Uint,
    Value,
    compare,
    cost_size,
    count_views,
    element,
    elements,
    equal,
    is_list,
    no_overload,
    type_name,
    unlike,
)

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZEROS = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_TYPE_NAMES = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_EXAMPLES = {
    "isSorted": ("[1, 2, 2].isSorted()", "!['b', 'a'].isSorted()"),
    "min": ("[3, 1, 2].min() == 1",),
    "max": ("['a', 'c', 'b'].max() == 'c'",),
    "sum": ("[1, 2, 3].sum() == 6", "[].sum() == 0"),
    "sort": ("[3, 1, 2].sort() == [1, 2, 3]",),
    "@sortByAssociatedKeys": ("[1, 2, 3].sortBy(e, -e) == [3, 2, 1]",),
}


def _is_sorted(values: Value) -> Value:
    spend_comparisons(len(values))
    before = None
    for at, value in enumerate(elements(values)):
        if type(value) is Fault or type(value) not in COMPARABLE:
            return value if type(value) is Fault else no_overload()
        if at:
            found = compare(before, value)
            if found == 1 and type(found) is int:
                return False
        before = value
    return True


def _extreme(name: str, replace_when: int) -> Implement:
    def run(values: Value) -> Value:
        spend_comparisons(len(values))
        best, first = None, True
        for value in elements(values):
            if type(value) is Fault or type(value) not in COMPARABLE:
                return value if type(value) is Fault else no_overload()
            if first or compare(best, value) == replace_when:
                best, first = value, False
        return Fault(f"{name} called on empty list") if first else best

    return run


def _sum(zero: Value) -> Implement:
    def run(values: Value) -> Value:
        spend_comparisons(len(values))
        total = zero
        for value in elements(values):
            total = value if type(value) is Fault else add(total, value)
            if type(total) is Fault:
                return total
        return total

    return run


def _index_of(values: Value, wanted: Value) -> Value:
    spend(len(values))
    for at, value in enumerate(elements(values)):
        if type(value) is not Fault and equal(value, wanted) is True:
            return at
    return -1


def _last_index_of(values: Value, wanted: Value) -> Value:
    spend(len(values))
    for at in range(len(values) - 1, -1, -1):
        value = element(values, at)
        if type(value) is not Fault and equal(value, wanted) is True:
            return at
    return -1


def _includes(target: Value, wanted: Value) -> Value:
    if is_list(target):
        return _index_of(target, wanted) >= 0
    return equal(target, wanted) is True


def _slice(values: Value, start: int, end: int) -> Value:
    size = len(values)
    if start < 0 or end < 0:
        return Fault(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        return Fault(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if size < end:
        return Fault(f"cannot slice({start}, {end}), list is length {size}")
    spend(end - start)
    return count_views([element(values, at) for at in range(start, end)])


def _flatten(values: Value, depth: int = 1) -> Value:
    if not is_list(values) or type(depth) is not int:
        return Fault(f"no such overload: {type_name(values)}.flatten()")
    if depth < 0:
        return Fault("level must be non-negative")
    made: list[Value] = []
    spend(len(values))
    waiting = [(elements(values), depth)]
    while waiting:
        values_left, level = waiting[-1]
        for value in values_left:
            if level > 0 and is_list(value):
                spend(len(value) + 1)
                waiting.append((elements(value), level - 1))
                break
            made.append(value)
        else:
            waiting.pop()
    return count_views(made)


def _sort(values: Value) -> Value:
    return _sort_by(values, values) if is_list(values) else unlike(values, "sort")


def _order(one: tuple[Value, Value], other: tuple[Value, Value]) -> int:
    found = compare(one[0], other[0])
    return found if type(found) is int else 0


def _sort_by(values: Value, keys: Value) -> Value:
    if not is_list(values):
        return unlike(values, "@sortByAssociatedKeys")
    spend(len(values) * len(values).bit_length() // 2)
    named = list(elements(keys))
    if not named:
        return values
    kind = type_name(named[0]) if type(named[0]) is not Fault else ""
    if kind not in _COMPARABLE and kind not in _TYPE_NAMES.values():
        return Fault("list elements must be comparable")
    if any(type(key) is Fault or type_name(key) != kind for key in named):
        return Fault("list elements must have the same type")
    pairs = sorted(zip(named, elements(values), strict=True), key=cmp_to_key(_order))
    return count_views([value for _, value in pairs])


def _range(count: int) -> Value:
    if count < 0:
        return Fault(f"lists.range: size must be non-negative, got {count}")
    if count > limits.MAX_RANGE:
        return Fault(f"lists.range: size {count} exceeds maximum allowed ({limits.MAX_RANGE})")
    spend(count * 4)  # new numbers take more memory than existing elements
    return list(range(count))


def _reverse(values: Value) -> Value:
    spend(len(values))
    return count_views(list(elements(values))[::-1])


def _distinct(values: Value) -> Value:
    if not len(values):
        return values
    made: list[Value] = []
    seen: set[object] = set()
    for value in elements(values):
        if type(value) in (str, bytes, bool):
            key = (type(value), value)
            if key in seen:
                continue
            seen.add(key)
        elif type(value) is not Fault:
            spend(len(made))
            if any(equal(value, other) is True for other in made):
                continue
        made.append(value)
    return made


def _made(args: list[Value], result: Value) -> int:
    return list_made(1, cost_size(result))


def _literal(part: Part, default: int) -> int:
    """Return the value of an int literal, but at least 0; return ``default`` for other parts."""
    return max(part.literal, 0) if type(part.literal) is int else default


def _slice_estimated(call: CallSizes) -> CallCost:
    count = (_literal(call.parts[2], call.size(0)[1]) - _literal(call.parts[1], 0)) & MOST
    return list_made_estimated(1, (count, count))


def _range_estimated(call: CallSizes) -> CallCost:
    count = _literal(call.parts[0], MOST)
    return list_made_estimated(1, (count, count))


def _flattened(args: list[Value], result: Value) -> int:
    if len(args) == 2 and type(args[1]) is not int:
        raise Broken(f"interface conversion: ref.Val is {go_type(args[1])}, not types.Int")
    depth = float(args[1]) if len(args) == 2 and args[1] >= 0 else 1.0
    return list_made(depth, cost_size(args[0]))


def _flatten_estimated(call: CallSizes) -> CallCost:
    depth = _literal(call.parts[1], MOST) if len(call.parts) > 1 else 1
    return list_made_estimated(float(depth), call.size(0))


_ADDING = (str, int, Uint, float, bytes, Duration, Timestamp)


def _comparing(keys: int, factor: float) -> Cost:
    """Return the cost of comparing the elements of a list with each other.

    ``keys`` is the argument index of the list.
    """

    def charge(args: list[Value], result: Value) -> int:
        values = args[keys]
        if not is_list(values):
            lacks = "Contains" if type(values) in _ADDING else "Add"
            raise Broken(f"interface conversion: {go_type(values)} is not traits.Lister: missing method {lacks}")
        size = cost_size(values)
        of_text = size and type(next(iter(elements(values)))) in (str, bytes)
        return list_made(2.0 + TRAVERSAL if of_text else 2.0, size * size)

    def estimate(call: CallSizes) -> CallCost:
        size = call.size(keys)
        return list_made_estimated(factor, multiply(size, size))

    return Cost(charge, estimate)


_SLICE, _RANGE = Cost(_made, _slice_estimated), Cost(_made, _range_estimated)
_REVERSE = Cost(_made, lambda call: list_made_estimated(1, call.size(0)))
_FLATTEN = Cost(_flattened, _flatten_estimated)
_SORT, _SORT_TEXTS = _comparing(0, 2.0), _comparing(0, 2.0 + TRAVERSAL)
_SORT_BY, _SORT_BY_TEXTS = _comparing(1, 2.0), _comparing(1, 2.0 + TRAVERSAL)


def _each(
    function: str, id: str, signature: str, run: Implement, cost: Cost, of_texts: Cost | None = None
) -> list[Overload]:
    """Return a row for each comparable type.

    TYPE stands for its short name in ``id`` and ``signature``, and NAME for its full name in ``id``.
    """
    return [
        row(
            function,
            id.replace("TYPE", name).replace("NAME", _TYPE_NAMES.get(name, name)),
            signature.replace("TYPE", name),
            run,
            *(_EXAMPLES[function] if name == "int" else ()),
            cost=of_texts if of_texts is not None and name in ("string", "bytes") else cost,
        )
        for name in _COMPARABLE
    ]


def _summed() -> list[Overload]:
    return [
        row(
            "sum",
            f"list_{name}_sum_{name}",
            f".list({name}) -> {name}",
            _sum(zero),
            *(_EXAMPLES["sum"] if name == "int" else ()),
            cost=TRAVERSE,
        )
        for name, zero in _ZEROS.items()
    ]


KUBERNETES = Library(
    "kubernetes.lists",
    (
        *_each("isSorted", "list_TYPE_is_sorted_bool", ".list(TYPE) -> bool", _is_sorted, TRAVERSE),
        *_summed(),
        *_each("max", "list_TYPE_max_TYPE", ".list(TYPE) -> TYPE", _extreme("max", -1), TRAVERSE),
        *_each("min", "list_TYPE_min_TYPE", ".list(TYPE) -> TYPE", _extreme("min", 1), TRAVERSE),
        row("indexOf", "list_a_index_of_int", ".list(A), A -> int", _index_of, "[1, 2, 2].indexOf(2) == 1",
            cost=TRAVERSE),
        row("lastIndexOf", "list_a_last_index_of_int", ".list(A), A -> int", _last_index_of,
            "[1, 2, 2].lastIndexOf(2) == 2", cost=TRAVERSE),
    ),
)  # fmt: skip
INCLUDES = Library(
    "kubernetes.lists.includes",
    (row("includes", "list_includes_dyn_dyn", ".dyn, dyn -> bool", _includes, "[1, 2].includes(2)",
         "'a'.includes('a')", "![1].includes('a')", cost=TRAVERSE_ANY),),
    since=(1, 37),
)  # fmt: skip
EXTENSION = Library(
    "lists",
    (
        row("slice", "list_slice", ".list(T), int, int -> list(T)", _slice, "[1, 2, 3, 4].slice(1, 3) == [2, 3]",
            cost=_SLICE),
        *with_flags((
            row("flatten", "list_flatten", ".list(list(T)) -> list(T)", _flatten,
                "[[1], [2, 3]].flatten() == [1, 2, 3]", cost=_FLATTEN),
            row("flatten", "list_flatten_int", ".list(dyn), int -> list(dyn)", _flatten,
                "[[1], [2]].flatten(1) == [1, 2]", cost=_FLATTEN),
        ), guarded=False),
        *with_flags((
            *_each("sort", "list_NAME_sort", ".list(TYPE) -> list(TYPE)", _sort, _SORT, _SORT_TEXTS),
            *_each("@sortByAssociatedKeys", "list_NAME_sortByAssociatedKeys", ".list(A), list(TYPE) -> list(A)",
                   _sort_by, _SORT_BY, _SORT_BY_TEXTS),
        ), guarded=False, singleton=True),
        row("lists.range", "lists_range", "int -> list(int)", _range, "lists.range(3) == [0, 1, 2]", cost=_RANGE),
        row("reverse", "list_reverse", ".list(T) -> list(T)", _reverse, "[1, 2].reverse() == [2, 1]", cost=_REVERSE),
        row("distinct", "list_distinct", ".list(T) -> list(T)", _distinct, "[1, 2, 1].distinct() == [1, 2]",
            cost=_SORT),
    ),
    LISTS,
    (1, 34),
)  # fmt: skip
