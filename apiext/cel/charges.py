"""What calls really cost, function by function, from their arguments and results (upstream: library/cost.go)."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import TypeAlias

from apiext.cel.effort import spend
from apiext.cel.go_values import go_type
from apiext.cel.library.named_formats import NamedFormat
from apiext.cel.ranges import AUTHORIZATION, LIST_COST, PATTERN, SORTABLE, TRAVERSAL
from apiext.cel.values import Broken, Duration, Special, Timestamp, Uint, Value, cost_size, elements, is_list, is_map
from apiext.cel.views import ObjectView, Preserved

Charge: TypeAlias = Callable[[list[Value], Value], int]


def scaled(size: float, factor: float = TRAVERSAL) -> int:
    """Return a size times a factor, rounded up."""
    return ceil(size * factor)


def _one(args: list[Value], result: Value) -> int:
    return 1


def _authorization(args: list[Value], result: Value) -> int:
    return AUTHORIZATION


def traversal(value: Value) -> int:
    """Return the cost of reading all of a value."""
    kind = type(value)
    if kind is str:
        return int((len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))) * TRAVERSAL)
    if kind is bytes:
        return int(len(value) * TRAVERSAL)
    if type(value) is Preserved:
        return 1
    if is_list(value) or is_map(value):
        spend(len(value) + 1)
    if is_list(value):
        return sum(traversal(inner) for inner in elements(value))
    if isinstance(value, ObjectView):
        return value.traversal(traversal)
    if is_map(value):
        found = [(key, value.find(key)) for key in elements(value)]
        return sum(traversal(key) + traversal(entry[1]) for key, entry in found if type(entry) is tuple)
    return 1


def _traversed(args: list[Value], result: Value) -> int:
    return traversal(args[0])


def _read(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[0]))


def _read_second(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[1]))


def _read_twice(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[0]), 2 * TRAVERSAL)


def _joined(args: list[Value], result: Value) -> int:
    return scaled(cost_size(result), 2 * TRAVERSAL)


def _matched(args: list[Value], result: Value) -> int:
    return ceil((1.0 + cost_size(args[0])) * TRAVERSAL) * ceil(cost_size(args[1]) * PATTERN)


def _contains_ip(args: list[Value], result: Value) -> int:
    return scaled(2 * cost_size(args[0]))


def _contains_ip_text(args: list[Value], result: Value) -> int:
    return scaled(2 * cost_size(args[0])) + scaled(cost_size(args[1]))


def _contains_network(args: list[Value], result: Value) -> int:
    return scaled(2 * cost_size(args[0])) + scaled(cost_size(args[0])) + 1


def _contains_network_text(args: list[Value], result: Value) -> int:
    return _contains_network(args, result) + scaled(cost_size(args[1]))


def _validated(args: list[Value], result: Value) -> int:
    if type(args[0]) is not NamedFormat:
        return 1
    return ceil((1.0 + cost_size(args[1])) * TRAVERSAL) * ceil(args[0].pattern_size * PATTERN)


def compared(args: list[Value], result: Value) -> int:
    """Return the cost of comparing two values."""
    return scaled(min(cost_size(args[0]), cost_size(args[1])))


def equality(args: list[Value], result: Value) -> int:
    """Return the cost of ==: that of the shorter value, 1 for values of a library's own type."""
    if isinstance(args[0], Special):
        return 1
    return compared(args, result)


def _concatenated(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[0]) + cost_size(args[1]))


def _found(args: list[Value], result: Value) -> int:
    return cost_size(args[1])


def _contained(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[0])) * scaled(cost_size(args[1]))


def _allocated(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_COST


def _listed(args: list[Value], result: Value) -> int:
    return _allocated(1, cost_size(result))


def _flattened(args: list[Value], result: Value) -> int:
    if len(args) == 2 and type(args[1]) is not int:
        raise Broken(f"interface conversion: ref.Val is {go_type(args[1])}, not types.Int")
    depth = float(args[1]) if len(args) == 2 and args[1] >= 0 else 1.0
    return _allocated(depth, cost_size(args[0]))


_ADDING = (str, int, Uint, float, bytes, Duration, Timestamp)


def _self_compared(values: Value) -> int:
    if not is_list(values):
        lacks = "Contains" if type(values) in _ADDING else "Add"
        raise Broken(f"interface conversion: {go_type(values)} is not traits.Lister: missing method {lacks}")
    size = cost_size(values)
    factor = 2.0
    if is_list(values) and size and type(next(iter(elements(values)))) in (str, bytes):
        factor += TRAVERSAL
    return _allocated(factor, size * size)


def _sorted(args: list[Value], result: Value) -> int:
    return _self_compared(args[0])


def _sorted_by(args: list[Value], result: Value) -> int:
    return _self_compared(args[1])


def _sets(factor: float) -> Charge:
    def charge(args: list[Value], result: Value) -> int:
        return 1 + int(cost_size(args[0]) * cost_size(args[1]) * factor)

    return charge


# Charges by overload come first, then those by function, then these by overload again.
_EXTENSIONS: Mapping[str, Charge] = {
    "list_slice": _listed, "list_flatten": _flattened, "list_flatten_int": _flattened, "lists_range": _listed,
    "list_reverse": _listed, "list_distinct": _sorted,
    **{f"list_{name}_sort": _sorted for name in SORTABLE},
    **{f"list_{name}_sortByAssociatedKeys": _sorted_by for name in SORTABLE},
    "list_sets_contains_list": _sets(1), "list_sets_intersects_list": _sets(1), "list_sets_equivalent_list": _sets(2),
}  # fmt: skip
_BY_FUNCTION: Mapping[str, Charge] = {
    "check": _authorization,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversed),
    **dict.fromkeys(("url", "jsonpatch.escapeKey", "lowerAscii", "upperAscii", "substring", "trim"), _read),
    "replace": _read_twice, "split": _read_twice, "join": _joined, "find": _matched, "findAll": _matched,
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip"), _read),
    "ip.isCanonical": _read_twice,
    **dict.fromkeys(
        ("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
         "isLinkLocalUnicast", "isGlobalUnicast"), _one),
    "containsIP": _contains_ip, "containsCIDR": _contains_network,
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _read),
    "validate": _validated, "_==_": equality,
}  # fmt: skip
_WITHIN_FUNCTION: Mapping[str, Charge] = {
    "cidr_ip": _one,
    "cidr_contains_ip_string": _contains_ip_text,
    "cidr_contains_cidr_string": _contains_network_text,
}
_STANDARD: Mapping[str, Charge] = {
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote",
         "string_format"), _read),
    "starts_with_string": _read_second, "ends_with_string": _read_second,
    "in_list": _found, "not_equals": compared,
    **{f"{order}_{kind}": compared for order in ("less", "greater", "less_equals", "greater_equals")
       for kind in ("string", "bytes")},
    "add_string": _concatenated, "add_bytes": _concatenated, "contains_string": _contained,
    "matches_string": _matched, "matches": _matched,
}  # fmt: skip


def charge_of(function: str, overload: str) -> Charge | None:
    """Return how a call is charged; None for 1. ``overload`` is "" when it is only known when it runs."""
    return (
        _EXTENSIONS.get(overload)
        or _WITHIN_FUNCTION.get(overload)
        or _BY_FUNCTION.get(function)
        or _STANDARD.get(overload)
    )
