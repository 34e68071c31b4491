"""Functions of optionals, of lists (``first``, ``last``) and of macros with two variables."""

from apiext.cel.constructed import Open
from apiext.cel.dynamic import DynamicList, DynamicMap
from apiext.cel.macros import OPTIONAL, TWO_VARIABLES
from apiext.cel.overloads import Library, planned, row
from apiext.cel.values import NONE, Duration, Fault, Map, Optional, Timestamp, Uint, Value, element, elements


def _is_zero(value: Value) -> bool:
    if value is None or type(value) in (bool, int, Uint, float):
        return not value
    if type(value) is Duration:
        return value.ns == 0
    if type(value) is Timestamp:
        return value.ns == -62_135_596_800_000_000_000
    if type(value) is Open:
        return not value.fields
    # as upstream, data with a schema (DeclaredView) and values of library types (Special) are never zero values, even
    # if they are empty
    return type(value) in (str, bytes, list, Map, DynamicList, DynamicMap) and not len(value)


def _of_non_zero(value: Value) -> Value:
    return NONE if _is_zero(value) else Optional(True, value)


def _value(value: Optional) -> Value:
    return value.value if value.present else Fault("optional.none() dereference")


def _first(values: Value) -> Value:
    return Optional(True, element(values, 0)) if len(values) else NONE


def _last(values: Value) -> Value:
    return Optional(True, element(values, len(values) - 1)) if len(values) else NONE


def _unwrap(values: Value) -> Value:
    made = []
    for value in elements(values):
        if type(value) is not Optional:
            return Fault(f"value {value} is not optional")
        if value.present:
            made.append(value.value)
    return made


LIBRARY = Library(
    "optional",
    (
        row("optional.of", "optional_of", "V -> optional(V)", lambda value: Optional(True, value),
            "optional.of(1).value() == 1"),
        row("optional.ofNonZeroValue", "optional_ofNonZeroValue", "V -> optional(V)", _of_non_zero,
            "!optional.ofNonZeroValue('').hasValue()"),
        row("optional.none", "optional_none", "-> optional(V)", lambda: NONE, "!optional.none().hasValue()"),
        row("value", "optional_value", ".optional(V) -> V", _value, "optional.of('a').value() == 'a'"),
        row("hasValue", "optional_hasValue", ".optional(V) -> bool", lambda value: value.present,
            "optional.of(1).hasValue()"),
        row("or", "optional_or_optional", ".optional(V), optional(V) -> optional(V)", planned,
            "optional.none().or(optional.of(1)).value() == 1"),
        row("orValue", "optional_orValue_value", ".optional(V), V -> V", planned,
            "{'a': 1}[?'b'].orValue(2) == 2"),
        row("_?._", "select_optional_field", "dyn, string -> optional(V)", planned,
            "{'a': 1}.?a.value() == 1"),
        row("_[?_]", "list_optindex_optional_int", "list(V), int -> optional(V)", planned,
            "![1][?1].hasValue()"),
        row("_[?_]", "optional_list_optindex_optional_int", "optional(list(V)), int -> optional(V)", planned),
        row("_[?_]", "map_optindex_optional_value", "map(K, V), K -> optional(V)", planned),
        row("_[?_]", "optional_map_optindex_optional_value", "optional(map(K, V)), K -> optional(V)", planned),
        row("_[_]", "optional_list_index_int", "optional(list(V)), int -> optional(V)", planned),
        row("_[_]", "optional_map_index_value", "optional(map(K, V)), K -> optional(V)", planned),
        row("last", "list_last", ".list(V) -> optional(V)", _last, "[1, 2].last().value() == 2"),
        row("first", "list_first", ".list(V) -> optional(V)", _first, "[1, 2].first().value() == 1"),
        row("optional.unwrap", "optional_unwrap", "list(optional(V)) -> list(V)", _unwrap,
            "optional.unwrap([optional.of(1), optional.none()]) == [1]"),
        row("unwrapOpt", "optional_unwrapOpt", ".list(optional(V)) -> list(V)", _unwrap,
            "[optional.of(1)].unwrapOpt() == [1]"),
    ),
    OPTIONAL,
    (1, 28),
)  # fmt: skip
COMPREHENSIONS = Library(
    "two-variable comprehensions",
    (
        row("cel.@mapInsert", "@mapInsert_map_key_value", "map(K, V), K, V -> map(K, V)", planned,
            "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}"),
        row("cel.@mapInsert", "@mapInsert_map_map", "map(K, V), map(K, V) -> map(K, V)", planned,
            "{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}"),
    ),
    TWO_VARIABLES,
    (1, 32),
)  # fmt: skip
