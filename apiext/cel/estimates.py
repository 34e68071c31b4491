"""What calls of library functions can cost, function by function (upstream: library/cost.go and ext lists, sets)."""

from collections.abc import Mapping
from math import ceil

from apiext.cel import types
from apiext.cel.ranges import (
    AUTHORIZATION,
    LIST_COST,
    MOST,
    NOWHERE,
    ONE,
    PATTERN,
    SORTABLE,
    TRAVERSAL,
    CallCost,
    FunctionCost,
    Part,
    Path,
    Range,
    Sizes,
    add,
    multiply,
    scale,
    union,
)

NAME_PATTERN = 128  # characters of a format's pattern that estimates count (upstream: MaxNameFormatRegexSize)
FORMAT_SIZE = 64  # upstream: MaxFormatSize


def _fixed(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return ONE, None


def _check(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return (AUTHORIZATION, AUTHORIZATION), None


def _element(target: Part) -> Part | None:
    """Return the elements of a list as a part."""
    if not target.type.params:
        return None
    steps = target.path.steps()  # copied: this step is never taken in place
    path = Path([*steps, "@items"], len(steps) + 1) if steps else NOWHERE
    return Part(path, target.type.params[0], None)


def _traverse(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None:
        return None
    size = e.part_size(target)
    element = _element(target)
    if element is not None:
        each = ONE
        if element.type.kind in ("string", "bytes"):
            each = add(each, scale(e.part_size(element), TRAVERSAL))
        return multiply(size, each), None
    if overload.startswith("list_includes"):
        return multiply(size, ONE), None
    return scale(size, TRAVERSAL), None


def _read_arg(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return (scale(e.part_size(args[0]), TRAVERSAL), None) if args else None


def _url(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    size = e.part_size(args[0])
    return scale(size, TRAVERSAL), size


def _read_target(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None:
        return None
    size = e.part_size(target)
    return scale(size, TRAVERSAL), size


def _ceil_divided(one: int, other: int) -> int:
    made = float(one) / float(other)
    return MOST if made >= 18446744073709551616.0 else ceil(made)


def _replace(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = e.part_size(target), e.part_size(args[0]), e.part_size(args[1])
    most_count = most_kept = least_count = least_kept = 0
    if old[0] == 0:
        most_count, most_kept = min(size[1] + 1, MOST), size[1]
    elif new[1] <= old[0]:
        most_kept = size[1]
    else:
        most_count = _ceil_divided(size[1], old[0])
    if old[1] == 0:
        least_count, least_kept = min(size[0] + 1, MOST), size[0]
    elif old[1] <= new[0]:
        least_kept = size[0]
    else:
        least_count = _ceil_divided(size[0], old[1])
    result = add(multiply((least_count, most_count), new), (least_kept, most_kept))
    return scale(size, 2 * TRAVERSAL), result


def _split(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None:
        return None
    size = e.part_size(target)
    most = size[1]
    if len(args) > 1 and type(args[1].literal) is int:
        most = args[1].literal & MOST
    return scale(size, 2 * TRAVERSAL), (0, most)


def _join(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None:
        return None
    count = e.part_size(target)
    element = _element(target)
    size: Range = multiply(count, e.part_size(element)) if element is not None else (0, 0)
    if args:
        between = (max(count[0] - 1, 0), max(count[1] - 1, 0))
        size = add(size, multiply(e.part_size(args[0]), between))
    return scale(size, TRAVERSAL), size


def _find(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None or not args:
        return None
    size = e.part_size(target)
    text = scale(add(size, ONE), TRAVERSAL)
    return multiply(text, scale(e.part_size(args[0]), PATTERN)), (0, size[1])


def _ip(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return (ONE, None) if overload == "cidr_ip" else _read_arg(e, overload, target, args)


def _canonical(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return scale(e.part_size(args[0]), 2 * TRAVERSAL), None


_BYTES: Range = (4, 16)


def _contains_ip(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    cost = scale(add(_BYTES, _BYTES), TRAVERSAL)
    if overload == "cidr_contains_ip_string":
        cost = add(cost, scale(e.part_size(args[0]), TRAVERSAL))
    return cost, None


def _contains_network(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    cost = add(add(scale(add(_BYTES, _BYTES), TRAVERSAL), scale(_BYTES, TRAVERSAL)), ONE)
    if overload == "cidr_contains_cidr_string":
        cost = add(cost, scale(e.part_size(args[0]), TRAVERSAL))
    return cost, None


def _validate(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return scale(scale(e.part_size(args[0]), TRAVERSAL), NAME_PATTERN * PATTERN), None


_ADDRESSES = (types.IP, types.CIDR)
_CHEAP = (types.QUANTITY, types.SEMVER)


def _equal(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if len(args) != 2 or args[0].type != args[1].type:
        return None
    kind = args[0].type
    if kind in _ADDRESSES or kind in _CHEAP:
        return ONE, None
    if kind == types.FORMAT:
        return scale((1, FORMAT_SIZE), TRAVERSAL), None
    if kind == types.URL:
        size = args[1].size
        most = 1 if size is None else union(size, size)[1]
        return scale((1, most), TRAVERSAL), None
    return None


BY_FUNCTION: Mapping[str, FunctionCost] = {
    "check": _check,
    **dict.fromkeys(
        ("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason",
         "error", "errored"), _fixed),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traverse),
    "url": _url, "jsonpatch.escapeKey": _url,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _read_target),
    "replace": _replace, "split": _split, "join": _join, "find": _find, "findAll": _find,
    **dict.fromkeys(("cidr", "isIP", "isCIDR"), _read_arg),
    "ip": _ip, "ip.isCanonical": _canonical,
    **dict.fromkeys(
        ("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
         "isLinkLocalUnicast", "isGlobalUnicast"), _fixed),
    "containsIP": _contains_ip, "containsCIDR": _contains_network,
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _read_arg),
    "validate": _validate, "format.named": _fixed,
    **dict.fromkeys(
        ("sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add",
         "sub", "major", "minor", "patch"), _fixed),
    **dict.fromkeys(("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"), _fixed),
    "_==_": _equal,
}  # fmt: skip


def _allocating(factor: float, size: Range) -> CallCost:
    return add(add(scale(size, factor), ONE), (LIST_COST, LIST_COST)), size


def _number(part: Part, default: int) -> int:
    """Return a literal number, clamped at zero, or a default when the part is none."""
    if type(part.literal) is int:
        return max(part.literal, 0)
    return default


def _slice(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None:
        return None
    size = e.part_size(target)
    count = (_number(args[1], size[1]) - _number(args[0], 0)) & MOST
    return _allocating(1, (count, count))


def _range(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    count = _number(args[0], MOST)
    return _allocating(1, (count, count))


def _reverse(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return None if target is None else _allocating(1, e.part_size(target))


def _flatten(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    if target is None:
        return None
    depth = _number(args[0], MOST) if args else 1
    return _allocating(float(depth), e.part_size(target))


def _squared(e: Sizes, part: Part, factor: float) -> CallCost:
    size = e.part_size(part)
    return _allocating(factor, multiply(size, size))


def _distinct(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return None if target is None else _squared(e, target, 2.0)


def _factor(overload: str) -> float:
    return 2.0 + TRAVERSAL if overload.startswith(("list_string_", "list_bytes_")) else 2.0


def _sort(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return None if target is None else _squared(e, target, _factor(overload))


def _sort_by(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
    return None if target is None else _squared(e, args[0], _factor(overload))


def _sets(factor: float) -> FunctionCost:
    def estimate(e: Sizes, overload: str, target: Part | None, args: list[Part]) -> CallCost | None:
        sizes = multiply(e.part_size(args[0]), e.part_size(args[1]))
        return add(scale(sizes, factor), ONE), None

    return estimate


BY_OVERLOAD: Mapping[str, FunctionCost] = {
    "list_slice": _slice, "list_flatten": _flatten, "list_flatten_int": _flatten, "lists_range": _range,
    "list_reverse": _reverse, "list_distinct": _distinct,
    **{f"list_{name}_sort": _sort for name in SORTABLE},
    **{f"list_{name}_sortByAssociatedKeys": _sort_by for name in SORTABLE},
    "list_sets_contains_list": _sets(1), "list_sets_intersects_list": _sets(1), "list_sets_equivalent_list": _sets(2),
}  # fmt: skip
