"""CEL functions on strings (upstream: cel-go's extension ``strings``, version 2)."""

from math import ceil

from apiext.cel.costs import COPY, TRAVERSE, Cost, element_part, read, read_twice, scaled
from apiext.cel.effort import spend, spend_text, spend_work
from apiext.cel.formatting import format_text
from apiext.cel.go_values import show
from apiext.cel.overloads import Library, row, with_flags
from apiext.cel.ranges import MOST, TRAVERSAL, CallCost, CallSizes, Range, add, multiply, scale
from apiext.cel.values import Fault, Value, cost_size, element

_SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # noqa: E501
_TO_LOWER = {code: code + 32 for code in range(65, 91)}
_TO_UPPER = {code: code - 32 for code in range(97, 123)}
_QUOTED = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'
}  # fmt: skip


def _out(index: int) -> Fault:
    return Fault(f"index out of range: {index}")


def _char_at(text: str, index: int) -> Value:
    return text[index : index + 1] if 0 <= index <= len(text) else _out(index)


def _index_of(text: str, part: str, offset: int = 0) -> Value:
    if offset < 0:
        return _out(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


_SEARCHED_BACK = 16  # maximal length of a substring for which a search from the end tries each position


def _last_index_of(text: str, part: str, offset: int | None = None) -> Value:
    if offset is None:
        offset = len(text)
    elif offset < 0:
        return _out(offset)
    elif offset >= len(text) and part:
        return -1
    if not part:
        return min(offset, len(text))
    if len(part) > len(text):
        return -1
    end = min(len(text), offset + len(part))
    if len(part) <= _SEARCHED_BACK:
        return text.rfind(part, 0, end)
    at = text[:end][::-1].find(part[::-1])  # linear time for long substrings, in contrast to `rfind`
    return -1 if at < 0 else end - at - len(part)


def _substring(text: str, start: int, end: int | None = None) -> Value:
    size = len(text)
    if end is None:
        return text[start:] if 0 <= start <= size else _out(start)
    if start > end:
        return Fault(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= size:
            return _out(index)
    return text[start:end]


def _replace(text: str, old: str, new: str, count: int = -1) -> Value:
    times = text.count(old)
    length = len(text) + (times if count < 0 else min(times, count)) * len(new)
    spend_text(length, wide=not (text.isascii() and new.isascii()))
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> Value:
    if count == 0:
        return []
    spend(text.count(separator) * (4 if separator else 1))  # new strings take more memory than characters
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if count < 0 or count >= len(text):
        return list(text)
    return [*text[: count - 1], text[count - 1 :]]


def _join(texts: Value, separator: str = "") -> Value:
    parts = []
    length = len(separator) * len(texts)
    for index in range(len(texts)):
        part = element(texts, index)
        if type(part) is not str:
            return Fault(f"join: invalid input: {part.message if type(part) is Fault else show(part)}")
        parts.append(part)
        length += len(part)
    spend_text(length, wide=not (separator.isascii() and all(map(str.isascii, parts))))
    return separator.join(parts)


def _translated(text: str, letters: dict[int, int]) -> str:
    spend_work(len(text) // 4)
    return text.translate(letters)


def _quote(text: str) -> Value:
    spend_text(len(text), wide=not text.isascii())
    spend_work(len(text) // 2)
    return '"' + "".join(_QUOTED.get(char, char) for char in text) + '"'


def _ceil_divided(one: int, other: int) -> int:
    made = float(one) / float(other)
    return MOST if made >= 18446744073709551616.0 else ceil(made)


def _replace_estimated(call: CallSizes) -> CallCost:
    size, old, new = call.size(0), call.size(1), call.size(2)
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


def _split_estimated(call: CallSizes) -> CallCost:
    size = call.size(0)
    most = size[1]
    if len(call.parts) > 2 and type(call.parts[2].literal) is int:
        most = call.parts[2].literal & MOST
    return scale(size, 2 * TRAVERSAL), (0, most)


def _joined(args: list[Value], result: Value) -> int:
    return scaled(cost_size(result), 2 * TRAVERSAL)


def _join_estimated(call: CallSizes) -> CallCost:
    count = call.size(0)
    element = element_part(call.parts[0])
    size: Range = multiply(count, call.part_size(element)) if element is not None else (0, 0)
    if len(call.parts) > 1:
        between = (max(count[0] - 1, 0), max(count[1] - 1, 0))
        size = add(size, multiply(call.size(1), between))
    return scale(size, TRAVERSAL), size


def _quote_estimated(call: CallSizes) -> CallCost:
    size = call.late_size(0)
    return scale(size, TRAVERSAL), ((size[0] + 2) & MOST, (size[1] * 2 + 2) & MOST)


_REPLACE = Cost(read_twice, _replace_estimated, by_name=True)
_SPLIT = Cost(read_twice, _split_estimated, by_name=True)
_JOIN = Cost(_joined, _join_estimated, by_name=True)
_FORMAT = Cost(read, lambda call: (scale(call.late_size(0), TRAVERSAL), None))
_QUOTE = Cost(read, _quote_estimated)

LIBRARY = Library(
    "strings",
    (
        row("charAt", "string_char_at_int", ".string, int -> string", _char_at, "'hello'.charAt(4) == 'o'"),
        row("indexOf", "string_index_of_string", ".string, string -> int", _index_of,
            "'hello'.indexOf('l') == 2", "'hello'.indexOf('') == 0", cost=TRAVERSE),
        row("indexOf", "string_index_of_string_int", ".string, string, int -> int", _index_of,
            "'hello'.indexOf('l', 3) == 3", cost=TRAVERSE),
        row("lastIndexOf", "string_last_index_of_string", ".string, string -> int", _last_index_of,
            "'hello'.lastIndexOf('l') == 3", cost=TRAVERSE),
        row("lastIndexOf", "string_last_index_of_string_int", ".string, string, int -> int", _last_index_of,
            "'hello'.lastIndexOf('l', 2) == 2", cost=TRAVERSE),
        row("lowerAscii", "string_lower_ascii", ".string -> string", lambda text: _translated(text, _TO_LOWER),
            "'TacoÀ'.lowerAscii() == 'tacoÀ'", cost=COPY),
        row("replace", "string_replace_string_string", ".string, string, string -> string", _replace,
            "'aaa'.replace('a', 'b') == 'bbb'", cost=_REPLACE),
        row("replace", "string_replace_string_string_int", ".string, string, string, int -> string", _replace,
            "'aaa'.replace('a', 'b', 2) == 'bba'", cost=_REPLACE),
        row("split", "string_split_string", ".string, string -> list(string)", _split,
            "'a,b'.split(',') == ['a', 'b']", "'ab'.split('') == ['a', 'b']", cost=_SPLIT),
        row("split", "string_split_string_int", ".string, string, int -> list(string)", _split,
            "'a,b,c'.split(',', 2) == ['a', 'b,c']", cost=_SPLIT),
        row("substring", "string_substring_int", ".string, int -> string", _substring,
            "'tacocat'.substring(4) == 'cat'", cost=COPY),
        row("substring", "string_substring_int_int", ".string, int, int -> string", _substring,
            "'tacocat'.substring(0, 4) == 'taco'", cost=COPY),
        row("trim", "string_trim", ".string -> string", lambda text: text.strip(_SPACE), "'  a\\t'.trim() == 'a'",
            cost=COPY),
        row("upperAscii", "string_upper_ascii", ".string -> string", lambda text: _translated(text, _TO_UPPER),
            "'tacoé'.upperAscii() == 'TACOé'", cost=COPY),
        *with_flags((
            row("format", "string_format", ".string, list(dyn) -> string", format_text,
                "'%s=%d'.format(['a', 1]) == 'a=1'", "'%.2f'.format([1.5]) == '1.50'", cost=_FORMAT),
        ), lazy=True),
        row("strings.quote", "strings_quote", "string -> string", _quote, "strings.quote('a\\n') == '\"a\\\\n\"'",
            cost=_QUOTE),
        row("join", "list_join", ".list(string) -> string", _join, "['a', 'b'].join() == 'ab'", cost=_JOIN),
        row("join", "list_join_string", ".list(string), string -> string", _join, "['a', 'b'].join('-') == 'a-b'",
            cost=_JOIN),
    ),
    since=(1, 29),
)  # fmt: skip
