"""Operators, conversions, and functions on strings and times, which every environment has."""

from collections.abc import Callable

from apiext.cel import arithmetic as a
from apiext.cel import conversions as c
from apiext.cel.constructed import Joined
from apiext.cel.costs import FLAT, Cost, match, match_estimated, one, read, scaled
from apiext.cel.effort import spend, spend_scan
from apiext.cel.macros import STANDARD as MACROS
from apiext.cel.overloads import Library, Overload, planned, row, with_flags
from apiext.cel.ranges import MOST, ONE, TRAVERSAL, CallCost, CallSizes, Entries, add, multiply, scale, union
from apiext.cel.regexes import PatternError, matches
from apiext.cel.times import in_zone
from apiext.cel.types import CIDR, FORMAT, IP, QUANTITY, SEMVER, URL
from apiext.cel.values import (
    SECOND,
    Fault,
    Special,
    Value,
    View,
    cost_size,
    elements,
    equal,
    equal_directly,
    is_list,
    is_map,
    no_overload,
    unlike,
)

_ORDERED = (
    ("bool", "bool", "bool"), ("int64", "int", "int"), ("int64_double", "int", "double"),
    ("int64_uint64", "int", "uint"), ("uint64", "uint", "uint"), ("uint64_double", "uint", "double"),
    ("uint64_int64", "uint", "int"), ("double", "double", "double"), ("double_int64", "double", "int"),
    ("double_uint64", "double", "uint"), ("string", "string", "string"), ("bytes", "bytes", "bytes"),
    ("timestamp", "timestamp", "timestamp"), ("duration", "duration", "duration"),
)  # fmt: skip
_EXAMPLES = {
    "_<_": ("1 < 2", "1 < 1.5", "'a' < 'b'", "!(dyn(1) < 0u)"),
    "_<=_": ("1 <= 1", "2u <= 2.0", "b'a' <= b'b'"),
    "_>_": ("timestamp('2021-01-01T00:00:01Z') > timestamp('2021-01-01T00:00:00Z')", "2 > 1u"),
    "_>=_": ("duration('60s') >= duration('1m')", "true >= false"),
}


def _compare(args: list[Value], result: Value) -> int:
    return scaled(min(cost_size(args[0]), cost_size(args[1])))


def _compare_estimated(call: CallSizes) -> CallCost:
    most = min(call.late_size(0)[1], call.late_size(1)[1])
    return scale((1 if most > 0 else 0, most), TRAVERSAL), None


def _equality(args: list[Value], result: Value) -> int:
    return 1 if isinstance(args[0], Special) else _compare(args, result)


_FORMAT_SIZE = 64  # maximal size of a format in estimates (upstream: MaxFormatSize)


def _equality_estimated(call: CallSizes) -> CallCost:
    """Return the estimate of ``==``.

    The estimate is that of a comparison, except for two values of one library type, such as IP.
    """
    first, second = call.parts
    if first.type == second.type:
        kind = first.type
        if kind in (IP, CIDR, QUANTITY, SEMVER):
            return ONE, None
        if kind == FORMAT:
            return scale((1, _FORMAT_SIZE), TRAVERSAL), None
        if kind == URL:
            return scale((1, 1 if second.size is None else second.size[1]), TRAVERSAL), None
    return _compare_estimated(call)


def _concatenate(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[0]) + cost_size(args[1]))


def _concatenated(call: CallSizes) -> tuple[int, int]:
    """Return the size of the concatenation of two values, and record the sizes of its elements."""
    first, second = call.node.args
    sizes, entries = call.sizes, call.sizes.entries
    size = add(call.late_size(0), call.late_size(1))
    of_first, of_second = sizes.entry_sizes(first), sizes.entry_sizes(second)
    if of_first is not None and of_second is not None:
        key, value = union(of_first.key, of_second.key), union(of_first.value, of_second.value)
        entries[call.node.id] = Entries(of_first.is_list, key, value)
    return size


def _concatenate_estimated(call: CallSizes) -> CallCost:
    size = _concatenated(call)
    return scale(size, TRAVERSAL), size


def _to_bytes_estimated(call: CallSizes) -> CallCost:
    size = call.late_size(0)
    return scale(size, TRAVERSAL), (size[0], size[1] * 4 & MOST)


def _to_text_estimated(call: CallSizes) -> CallCost:
    size = call.late_size(0)
    return scale(size, TRAVERSAL), (size[0] // 4, size[1])


def _search(args: list[Value], result: Value) -> int:
    return scaled(cost_size(args[0])) * scaled(cost_size(args[1]))


def _search_estimated(call: CallSizes) -> CallCost:
    return multiply(scale(call.late_size(0), TRAVERSAL), scale(call.late_size(1), TRAVERSAL)), None


_COMPARE = Cost(_compare, _compare_estimated)
_EQUALITY = Cost(_equality, _equality_estimated, by_name=True)
_CONCATENATE = Cost(_concatenate, _concatenate_estimated)
_CONCATENATE_LISTS = Cost(one, lambda call: (ONE, _concatenated(call)))
_TO_BYTES, _TO_TEXT = Cost(read, _to_bytes_estimated), Cost(read, _to_text_estimated)
_SEARCH = Cost(_search, _search_estimated)
_READ_SECOND = Cost(
    lambda args, result: scaled(cost_size(args[1])), lambda call: (scale(call.late_size(1), TRAVERSAL), None)
)
_LOOK_UP = Cost(lambda args, result: cost_size(args[1]), lambda call: (scale(call.late_size(1), 1), None))
_MATCH = Cost(match, lambda call: (match_estimated(call.late_size(0), call.late_size(1)), None))


def _comparisons(function: str, name: str, run: Callable[[Value, Value], Value]) -> list[Overload]:
    examples = _EXAMPLES[function]
    return [
        row(
            function,
            f"{name}_{id}",
            f"{left}, {right} -> bool",
            run,
            *(examples if n == 0 else ()),
            cost=_COMPARE if id in ("string", "bytes") else FLAT,
        )
        for n, (id, left, right) in enumerate(_ORDERED)
    ]


def contains(value: Value, container: Value) -> Value:
    """Return whether a list has an element, or whether a map has a key.

    In a list of the evaluated data (a View, not a list that CEL made), a comparison with an element may be a fault. If
    no element is equal, return the first such fault. For a container that is neither a list nor a map, return a fault.
    """
    if type(value) is Fault:
        return False if type(container) is list else value
    if is_list(container):
        spend(len(container))
    if type(container) is list:
        return any(equal(value, inner) is True for inner in container)
    if type(container) is Joined:
        one = contains(value, container.one)
        other = False if one is True else contains(value, container.other)
        return one if one is True or (type(one) is Fault and other is not True) else other
    if is_list(container):
        fault = None
        for inner in elements(container):
            found = equal_directly(inner, value)
            if found is True:
                return True
            if type(found) is Fault:
                fault = fault or found
        return fault or False
    if is_map(container):
        found = container.find(value)
        if type(found) is Fault:
            return found
        if found is not None and type(found[1]) is Fault and isinstance(container, View):
            return found[1]
        return found is not None
    return no_overload()


def _text(run: Callable[[str, str], bool], times: int = 1) -> Callable[[Value, Value], Value]:
    """Return a test of two strings that reads the first string at most ``times`` times."""

    def test(one: Value, other: Value) -> Value:
        if type(one) is not str or type(other) is not str:
            return no_overload()
        spend_scan(len(one) * times if len(other) > 1 else len(other))
        return run(one, other)

    return test


def _matches(text: Value, pattern: Value) -> Value:
    if type(text) is not str or type(pattern) is not str:
        return unlike(text, "matches")
    try:
        return matches(text, pattern)
    except PatternError as wrong:
        return Fault(str(wrong))


_FIELDS: dict[str, Callable[..., int]] = {
    "getFullYear": lambda t, ns: t.year,
    "getMonth": lambda t, ns: t.month - 1,
    "getDayOfYear": lambda t, ns: t.year_day,
    "getDayOfMonth": lambda t, ns: t.day - 1,
    "getDate": lambda t, ns: t.day,
    "getDayOfWeek": lambda t, ns: t.weekday,
    "getHours": lambda t, ns: t.hour,
    "getMinutes": lambda t, ns: t.minute,
    "getSeconds": lambda t, ns: t.second,
    "getMilliseconds": lambda t, ns: ns % SECOND // 1_000_000,
}


def _clock(name: str) -> Callable[..., Value]:
    field = _FIELDS[name]

    def read(time: Value, zone: str = "UTC") -> Value:
        spend_scan(len(zone) * 16)
        found = in_zone(time.ns, zone)
        return Fault(found) if isinstance(found, str) else field(found, time.ns)

    return read


def _span(nanoseconds: int) -> Callable[[Value], Value]:
    def read(duration: Value) -> Value:
        whole = abs(duration.ns) // nanoseconds
        return -whole if duration.ns < 0 else whole

    return read


_NOON = "timestamp('2009-02-13T23:31:30.045Z')"
_TIME_ROWS = (
    ("getFullYear", "year", f"{_NOON}.getFullYear() == 2009"),
    ("getMonth", "month", f"{_NOON}.getMonth() == 1"),
    ("getDayOfYear", "day_of_year", f"{_NOON}.getDayOfYear() == 43"),
    ("getDayOfMonth", "day_of_month", f"{_NOON}.getDayOfMonth() == 12"),
    ("getDate", "day_of_month_1_based", f"{_NOON}.getDate() == 13"),
    ("getDayOfWeek", "day_of_week", f"{_NOON}.getDayOfWeek() == 5"),
    ("getHours", "hours", f"{_NOON}.getHours() == 23"),
    ("getMinutes", "minutes", f"{_NOON}.getMinutes() == 31"),
    ("getSeconds", "seconds", f"{_NOON}.getSeconds() == 30"),
    ("getMilliseconds", "milliseconds", f"{_NOON}.getMilliseconds() == 45"),
)
_SPANS = (
    ("getHours", "hours", 3600 * SECOND, "duration('90m').getHours() == 1"),
    ("getMinutes", "minutes", 60 * SECOND, "duration('90m').getMinutes() == 90"),
    ("getSeconds", "seconds", SECOND, "duration('1m').getSeconds() == 60"),
    ("getMilliseconds", "milliseconds", 1_000_000, "duration('1s').getMilliseconds() == 1000"),
)


def _times() -> list[Overload]:
    rows = []
    for function, id, example in _TIME_ROWS:
        read = _clock(function)
        zoned = "timestamp_to_seconds_tz" if id == "seconds" else f"timestamp_to_{id}_with_tz"
        rows.append(row(function, f"timestamp_to_{id}", ".timestamp -> int", read, example))
        there = example.replace("() ==", "('UTC') ==")
        rows.append(row(function, zoned, ".timestamp, string -> int", read, there))
    for function, id, unit, example in _SPANS:
        rows.append(row(function, f"duration_to_{id}", ".duration -> int", _span(unit), example))
    return rows


def _arithmetic() -> list[Overload]:
    return [
        row("_+_", "add_bytes", "bytes, bytes -> bytes", a.add, "b'hi' + b'ya' == b'hiya'", cost=_CONCATENATE),
        row("_+_", "add_double", "double, double -> double", a.add, "3.5 + 1.25 == 4.75"),
        row("_+_", "add_duration_duration", "duration, duration -> duration", a.add,
            "duration('1m') + duration('1s') == duration('61s')"),
        row("_+_", "add_duration_timestamp", "duration, timestamp -> timestamp", a.add,
            "duration('24h') + timestamp('2023-01-01T00:00:00Z') == timestamp('2023-01-02T00:00:00Z')"),
        row("_+_", "add_timestamp_duration", "timestamp, duration -> timestamp", a.add,
            "timestamp('2023-01-01T00:00:00Z') + duration('1s') == timestamp('2023-01-01T00:00:01Z')"),
        row("_+_", "add_int64", "int, int -> int", a.add, "1 + 2 == 3"),
        row("_+_", "add_list", "list(A), list(A) -> list(A)", a.add, "[1] + [2, 3] == [1, 2, 3]",
            cost=_CONCATENATE_LISTS),
        row("_+_", "add_string", "string, string -> string", a.add, "'a' + 'b' == 'ab'", cost=_CONCATENATE),
        row("_+_", "add_uint64", "uint, uint -> uint", a.add, "22u + 33u == 55u"),
        row("_/_", "divide_double", "double, double -> double", a.divide, "7.0 / 2.0 == 3.5"),
        row("_/_", "divide_int64", "int, int -> int", a.divide, "10 / 3 == 3", "-10 / 3 == -3"),
        row("_/_", "divide_uint64", "uint, uint -> uint", a.divide, "42u / 2u == 21u"),
        row("_%_", "modulo_int64", "int, int -> int", a.modulo, "3 % 2 == 1", "-3 % 2 == -1"),
        row("_%_", "modulo_uint64", "uint, uint -> uint", a.modulo, "6u % 3u == 0u"),
        row("_*_", "multiply_double", "double, double -> double", a.multiply, "3.5 * 40.0 == 140.0"),
        row("_*_", "multiply_int64", "int, int -> int", a.multiply, "-2 * 6 == -12"),
        row("_*_", "multiply_uint64", "uint, uint -> uint", a.multiply, "13u * 3u == 39u"),
        row("-_", "negate_double", "double -> double", a.negate, "-(3.14) == -3.14"),
        row("-_", "negate_int64", "int -> int", a.negate, "-(5) == -5"),
        row("_-_", "subtract_double", "double, double -> double", a.subtract, "10.5 - 2.0 == 8.5"),
        row("_-_", "subtract_duration_duration", "duration, duration -> duration", a.subtract,
            "duration('1m') - duration('1s') == duration('59s')"),
        row("_-_", "subtract_int64", "int, int -> int", a.subtract, "5 - 3 == 2"),
        row("_-_", "subtract_timestamp_duration", "timestamp, duration -> timestamp", a.subtract,
            "timestamp('2023-01-02T00:00:00Z') - duration('24h') == timestamp('2023-01-01T00:00:00Z')"),
        row("_-_", "subtract_timestamp_timestamp", "timestamp, timestamp -> duration", a.subtract,
            "timestamp('2023-01-02T00:00:00Z') - timestamp('2023-01-01T00:00:00Z') == duration('24h')"),
        row("_-_", "subtract_uint64", "uint, uint -> uint", a.subtract, "42u - 3u == 39u"),
    ]  # fmt: skip


def _conversions() -> list[Overload]:
    return [
        *with_flags((
            row("type", "type", "A -> type(A)", c.type_of_value, "type(1) == int", "type(type) == type"),
            row("dyn", "to_dyn", "A -> dyn", c.identity, "dyn(1) == 1.0"),
        ), singleton=True),
        row("bool", "bool_to_bool", "bool -> bool", c.identity, "bool(true)"),
        row("bool", "string_to_bool", "string -> bool", c.to_bool, "bool('true')", "!bool('F')"),
        row("bytes", "bytes_to_bytes", "bytes -> bytes", c.identity, "bytes(b'a') == b'a'"),
        row("bytes", "string_to_bytes", "string -> bytes", c.to_bytes, "bytes('ÿ') == b'\\303\\277'", cost=_TO_BYTES),
        row("double", "double_to_double", "double -> double", c.identity, "double(1.5) == 1.5"),
        row("double", "int64_to_double", "int -> double", c.to_double, "double(2) == 2.0"),
        row("double", "string_to_double", "string -> double", c.to_double, "double('-1e3') == -1000.0"),
        row("double", "uint64_to_double", "uint -> double", c.to_double, "double(2u) == 2.0"),
        row("duration", "duration_to_duration", "duration -> duration", c.identity,
            "duration(duration('1s')) == duration('1s')"),
        row("duration", "string_to_duration", "string -> duration", c.to_duration,
            "duration('1h1.5s') == duration('3601500ms')"),
        row("int", "int64_to_int64", "int -> int", c.identity, "int(1) == 1"),
        row("int", "double_to_int64", "double -> int", c.to_int, "int(-1.9) == -1"),
        row("int", "duration_to_int64", "duration -> int", c.to_int, "int(duration('1us')) == 1000"),
        row("int", "string_to_int64", "string -> int", c.to_int, "int('-42') == -42"),
        row("int", "timestamp_to_int64", "timestamp -> int", c.to_int, "int(timestamp('1970-01-01T00:01:00Z')) == 60"),
        row("int", "uint64_to_int64", "uint -> int", c.to_int, "int(7u) == 7"),
        row("string", "string_to_string", "string -> string", c.identity, "string('a') == 'a'"),
        row("string", "bool_to_string", "bool -> string", c.to_string, "string(true) == 'true'"),
        row("string", "bytes_to_string", "bytes -> string", c.to_string, "string(b'abc') == 'abc'", cost=_TO_TEXT),
        row("string", "double_to_string", "double -> string", c.to_string,
            "string(1.0) == '1'", "string(1234567.0) == '1.234567e+06'", "string(0.00001) == '1e-05'"),
        row("string", "duration_to_string", "duration -> string", c.to_string, "string(duration('90m')) == '5400s'"),
        row("string", "int64_to_string", "int -> string", c.to_string, "string(-1) == '-1'"),
        row("string", "timestamp_to_string", "timestamp -> string", c.to_string,
            "string(timestamp('2023-01-01T01:00:00.50+01:00')) == '2023-01-01T01:00:00.5+01:00'"),
        row("string", "uint64_to_string", "uint -> string", c.to_string, "string(1u) == '1'"),
        row("timestamp", "timestamp_to_timestamp", "timestamp -> timestamp", c.identity,
            "timestamp(timestamp(0)) == timestamp(0)"),
        row("timestamp", "int64_to_timestamp", "int -> timestamp", c.to_timestamp,
            "timestamp(60) == timestamp('1970-01-01T00:01:00Z')"),
        row("timestamp", "string_to_timestamp", "string -> timestamp", c.to_timestamp,
            "timestamp('2023-01-01T00:00:00+01:00') == timestamp('2022-12-31T23:00:00Z')"),
        row("uint", "uint64_to_uint64", "uint -> uint", c.identity, "uint(1u) == 1u"),
        row("uint", "double_to_uint64", "double -> uint", c.to_uint, "uint(3.9) == 3u"),
        row("uint", "int64_to_uint64", "int -> uint", c.to_uint, "uint(3) == 3u"),
        row("uint", "string_to_uint64", "string -> uint", c.to_uint, "uint('3') == 3u"),
    ]  # fmt: skip


def _rest() -> list[Overload]:
    size = c.size_of
    return [
        row("_?_:_", "conditional", "bool, A, A -> A", planned, "(1 < 2 ? 'a' : 'b') == 'a'"),
        row("_&&_", "logical_and", "bool, bool -> bool", planned, "!(1 / 0 == 1 && false)"),
        row("_||_", "logical_or", "bool, bool -> bool", planned, "1 / 0 == 1 || true"),
        row("@not_strictly_false", "not_strictly_false", "bool -> bool", a.not_strictly_false),
        row("_==_", "equals", "A, A -> bool", equal, "[1, 2] == [1, 2]", "{'a': 1} == {'a': 1}", cost=_EQUALITY),
        row("_!=_", "not_equals", "A, A -> bool", planned, "'a' != 'b'", cost=_COMPARE),
        row("_[_]", "index_list", "list(A), int -> A", planned, "[1, 2][1] == 2"),
        row("_[_]", "index_map", "map(A, B), A -> B", planned, "{'k': 'v'}['k'] == 'v'"),
        *with_flags((
            row("!_", "logical_not", "bool -> bool", a.negation, "!false"),
            row("@in", "in_list", "A, list(A) -> bool", contains, "2 in [1, 2, 3]", cost=_LOOK_UP),
            row("@in", "in_map", "A, map(A, B) -> bool", contains, "'k' in {'k': 1}"),
        ), singleton=True),
        *with_flags((
            row("size", "size_bytes", "bytes -> int", size, "size(b'\\303\\277') == 2"),
            row("size", "bytes_size", ".bytes -> int", size, "b'ab'.size() == 2"),
            row("size", "size_list", "list(A) -> int", size, "size([1, 2]) == 2"),
            row("size", "list_size", ".list(A) -> int", size, "[1].size() == 1"),
            row("size", "size_map", "map(A, B) -> int", size, "size({}) == 0"),
            row("size", "map_size", ".map(A, B) -> int", size, "{1: 2}.size() == 1"),
            row("size", "size_string", "string -> int", size, "size('ÿ') == 1"),
            row("size", "string_size", ".string -> int", size, "'abc'.size() == 3"),
            row("matches", "matches", "string, string -> bool", _matches, "matches('123-456', '^[0-9]+-[0-9]+$')",
                cost=_MATCH),
            row("matches", "matches_string", ".string, string -> bool", _matches, "'hello'.matches('^h.*o$')",
                cost=_MATCH),
        ), guarded=False, singleton=True),
        *with_flags((
            row("contains", "contains_string", ".string, string -> bool", _text(str.__contains__, 8),
                "'abc'.contains('b')", cost=_SEARCH),
            row("endsWith", "ends_with_string", ".string, string -> bool", _text(str.endswith), "'abc'.endsWith('bc')",
                cost=_READ_SECOND),
            row("startsWith", "starts_with_string", ".string, string -> bool", _text(str.startswith),
                "'abc'.startsWith('ab')", cost=_READ_SECOND),
        ), guarded=False),
    ]  # fmt: skip


LIBRARY = Library(
    "standard",
    (
        *_rest(),
        *with_flags((
            *_arithmetic(),
            *_comparisons("_<_", "less", a.less),
            *_comparisons("_<=_", "less_equals", a.less_equals),
            *_comparisons("_>_", "greater", a.greater),
            *_comparisons("_>=_", "greater_equals", a.greater_equals),
        ), singleton=True),
        *_conversions(),
        *_times(),
    ),
    MACROS,
)  # fmt: skip
