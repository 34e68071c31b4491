"""Validation errors of fields: reason, path, text (ERR-07…10).

A path is a string (``spec.versions[0].name``); an empty path is printed as ``<nil>``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from msgspec import Struct

from apiext.documents.encoding import encode
from apiext.documents.floats import go_float
from apiext.documents.paths import Path, short, steps
from apiext.meta import limits
from apiext.text.quotes import go_quote, html_escaped

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"
INTERNAL = "InternalError"
NOT_FOUND = "FieldValueNotFound"


class FieldError(Struct, frozen=True):
    """The error of one field: reason, path and message.

    The reason is that of a Status. The message does not contain the path.
    """

    reason: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field or '<nil>'}: {self.body}"

    @property
    def size(self) -> int:
        """Return the number of characters in path and message, for the limit of a response."""
        return len(self.field) + len(self.body)


class Errors(list[FieldError]):
    """A list of field errors that stops growing after the first error over the response limits.

    Once the list is full, ``+=`` takes only one error from a generator, and drops it. A body can have a million errors,
    and each error may need more memory than its value.
    """

    _size = 0

    def __init__(self, errors: Iterable[FieldError] = ()) -> None:
        if errors:  # most writes have no errors
            self.extend(errors)

    @property
    def is_full(self) -> bool:
        """Return whether the list contains more errors than fit into a response."""
        return len(self) > 1 and not has_room(len(self), self._size)

    def append(self, error: FieldError) -> None:
        """Add an error unless the list is full."""
        self.extend((error,))

    def extend(self, errors: Iterable[FieldError]) -> None:
        """Add errors until the list is full."""
        for error in errors:
            if self.is_full:
                return
            self._size += error.size
            super().append(error)

    def __iadd__(self, errors: Iterable[FieldError]) -> Self:  # type: ignore[override,misc]  # of field errors only
        self.extend(errors)
        return self


def as_many_as_shown(errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """Yield errors up to the first error over the limits of a response.

    All errors together could need too much memory, since each error may quote a long value.
    """
    size = 0
    for count, error in enumerate(errors, 1):
        yield error
        size += error.size
        if not has_room(count, size):
            return


def first_by_text(errors: Iterable[FieldError]) -> list[FieldError]:
    """Sort errors by text; return them up to the first error over the limits of a response.

    The function never has more than about twice as many errors in memory as it may return.
    """
    found: list[FieldError] = []
    count = size = 0
    for error in errors:
        found.append(error)
        count, size = count + 1, size + error.size
        if not has_room(count, size):
            found = list(as_many_as_shown(sorted(found, key=str)))
            count = size = 0
    return list(as_many_as_shown(sorted(found, key=str)))


def first_shown(errors: Iterable[FieldError]) -> tuple[list[FieldError], bool]:
    """Return (the first errors that fit into a response, whether these are all errors)."""
    found: list[FieldError] = []
    size = 0
    for error in errors:
        size += error.size
        if not has_room(len(found) + 1, size):
            return found, False
        found.append(error)
    return found, True


def has_room(count: int, size: int) -> bool:
    """Return whether ``count`` errors, ``size`` characters in total, fit into a response.

    A single error always fits.
    """
    return count == 1 or (count <= limits.MAX_FIELD_ERRORS and size <= limits.MAX_FIELD_ERROR_BYTES)


def child(path: str, name: str) -> str:
    """Return the path of a field."""
    name = short(name)
    return f"{path}.{name}" if path else name


def item(path: str, key: str | int) -> str:
    """Return the path of a list item or of a map value."""
    return f"{path}[{key if key.__class__ is int else short(str(key))}]"


def field_path(path: Path, begin: str = "") -> str:
    """Return a path as errors print it, such as ``spec.labels[app]``.

    The result begins with the path ``begin``.
    """
    for step in steps(path):
        begin = child(begin, step) if step.__class__ is str else item(begin, step)
    return begin


def required(path: str, detail: str = "") -> FieldError:
    """Return the error of a missing value."""
    return FieldError(REQUIRED, path, f"Required value: {detail}" if detail else "Required value")


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """Return the error of a malformed value."""
    return FieldError(INVALID, path, f"Invalid value: {go_value(value)}{f': {detail}' if detail else ''}")


def invalid_omit(path: str, detail: str) -> FieldError:
    """Return the error of a malformed value, without the value (upstream's OmitValueType)."""
    return FieldError(INVALID, path, f"Invalid value: {detail}")


def type_invalid(path: str, value: Any, detail: str) -> FieldError:
    """Return the error of a value of a wrong type."""
    return FieldError(TYPE_INVALID, path, f"Invalid value: {go_value(value)}: {detail}")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """Return the error of a value outside an enum, with the supported values in the given order."""
    listed = ", ".join(go_quote(name) for name in supported)
    body = f"Unsupported value: {go_value(value)}"
    return FieldError(NOT_SUPPORTED, path, f"{body}: supported values: {listed}" if listed else body)


def duplicate(path: str, value: Any) -> FieldError:
    """Return the error of a duplicate value."""
    return FieldError(DUPLICATE, path, f"Duplicate value: {go_value(value)}")


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    """Return the error of a reference to a missing value."""
    body = f"Not found: {go_value(value)}"
    return FieldError(NOT_FOUND, path, f"{body}: {detail}" if detail else body)


def forbidden(path: str, detail: str) -> FieldError:
    """Return the error of a field that may not be set, or not to this value."""
    return FieldError(FORBIDDEN, path, f"Forbidden: {detail}" if detail else "Forbidden")


def too_long(path: str, limit: int, unit: str = "byte") -> FieldError:
    """Return the error of a string that exceeds its limit.

    ``unit`` is the unit of the limit: byte or character.
    """
    if limit < 0:
        return FieldError(TOO_LONG, path, "Too long: value is too long")
    noun = unit if limit == 1 else f"{unit}s"
    return FieldError(TOO_LONG, path, f"Too long: may not be more than {limit} {noun}")


def too_many(path: str, count: int, limit: int) -> FieldError:
    """Return the error of a list or map with too many entries."""
    if limit < 0:
        return FieldError(TOO_MANY, path, f"Too many: {count}: has too many items")
    noun = "item" if limit == 1 else "items"
    return FieldError(TOO_MANY, path, f"Too many: {count}: must have at most {limit} {noun}")


def aggregate(errors: Sequence[FieldError | str]) -> str:
    """Return one text for several errors, without duplicates (ERR-08)."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def go_print(value: Any) -> str:
    """Return a JSON value as Go's %v prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{go_print(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_print, value))}]"
    return "<nil>" if value is None else str(value)


class Named(str):
    """A string of a named Go type; errors print it as JSON."""

    __slots__ = ()


def go_value(value: Any) -> str:
    """Return an invalid value as errors print it.

    A string is printed like %q, null or a container as JSON, and any other value like %v.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not isinstance(value, Named):
        return go_quote(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return go_float(value)
    try:
        text = encode(value).decode()
    except TypeError:  # more levels than orjson supports
        return "(nested too deeply to show)"
    return html_escaped(text)
