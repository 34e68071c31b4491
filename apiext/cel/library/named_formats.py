"""Kubernetes' named string formats with their validation errors."""

import base64
import binascii
import re
from collections.abc import Callable
from math import ceil

from apiext.cel.costs import Cost
from apiext.cel.effort import spend_work
from apiext.cel.library.urls import refusal
from apiext.cel.overloads import Library, Overload, row
from apiext.cel.ranges import PATTERN, TRAVERSAL, CallCost, CallSizes, scale
from apiext.cel.times import parse_date
from apiext.cel.types import FORMAT
from apiext.cel.values import NONE, Fault, Optional, Special, Value, cost_size, no_overload

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DATE_TIME_SIZE, _UUID_SIZE, _BASE64_SIZE, _URL_SIZE = 71, 70, 84, 1103  # characters of upstream's patterns
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:.\d+)?(?:z|[+-]\d\d:\d\d)\Z", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\Z")
_MUST = "must consist of"
_ENDS = "and must start and end with an alphanumeric character"
_LABEL_TEXT = (
    f"a lowercase RFC 1123 label {_MUST} lower case alphanumeric characters or '-', {_ENDS} (e.g. 'my-name',  or "
    f"'123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT = (
    f"a lowercase RFC 1123 subdomain {_MUST} lower case alphanumeric characters, '-' or '.', {_ENDS} (e.g. "
    f"'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_1035_TEXT = (
    f"a DNS-1035 label {_MUST} lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    f"with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_NAME_TEXT = (
    f"{_MUST} alphanumeric characters, '-', '_' or '.', {_ENDS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
    f"used for validation is '{_QUALIFIED}')"
)
_QUALIFIED_TEXT = (
    f"a valid label key {_NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_TEXT = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS} (e.g. "
    f"'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_QUALIFIED})?')"
)
_is_label = re.compile(_LABEL).fullmatch
_is_of_labels = re.compile(r"[-.a-z0-9]+").fullmatch
_is_label_1035 = re.compile(_LABEL_1035).fullmatch
_is_qualified = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?").fullmatch


def _is_subdomain(text: str) -> bool:
    """Return whether a text consists of labels with dots between them.

    A regular expression would need 130 bytes of memory for each label.
    """
    if not _is_of_labels(text) or text[0] in "-." or text[-1] in "-.":
        return False
    return ".." not in text and ".-" not in text and "-." not in text


def _long(text: str, limit: int, unit: str) -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode("utf-8", "replace")) > limit else []


def _masked(text: str) -> str:
    return text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text


def _label(text: str) -> list[str]:
    faults = _long(text, 63, "characters")
    if not _is_label(text):
        faults.append("must not contain dots" if _is_subdomain(text) else _LABEL_TEXT)
    return faults


def _subdomain(text: str, unit: str = "characters") -> list[str]:
    return _long(text, 253, unit) + ([] if _is_subdomain(text) else [_SUBDOMAIN_TEXT])


def _label_1035(text: str) -> list[str]:
    return _long(text, 63, "characters") + ([] if _is_label_1035(text) else [_LABEL_1035_TEXT])


def _qualified(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [_QUALIFIED_TEXT]
    faults = []
    if slash:
        wrong = _subdomain(prefix, "bytes") if prefix else ["must be non-empty"]
        faults = [f"prefix part {fault}" for fault in wrong]
    faults += ["name part must be non-empty"] if not name else [f"name part {why}" for why in _long(name, 63, "bytes")]
    return faults if _is_qualified(name) else [*faults, f"name part {_NAME_TEXT}"]


def _value(text: str) -> list[str]:
    return _long(text, 63, "bytes") + ([] if not text or _is_qualified(text) else [_VALUE_TEXT])


def _uri(text: str) -> list[str]:
    why = refusal(text)
    return [why] if why else []


def _uuid(text: str) -> list[str]:
    return [] if _UUID.match(text) else ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return [] if text else ["invalid base64"]


def _date(text: str) -> list[str]:
    return [] if parse_date(text) is not None else ["invalid date"]


def _date_time(text: str) -> list[str]:
    day, *rest = text.lower().split("t")
    clock = _CLOCK.match(rest[0]) if rest and parse_date(day) is not None else None
    if clock is not None and clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59":
        return []
    return ["invalid datetime"]


class NamedFormat(Special):
    """A format: its name, its validation function, and the length of its pattern for costs."""

    __slots__ = ("name", "pattern_size", "test")
    type_name = FORMAT.name
    go_type = "cel.Format"
    hashed = False

    def __init__(self, name: str, test: Callable[[str], list[str]], pattern_size: int) -> None:
        self.name = name
        self.test = test
        self.pattern_size = pattern_size

    def same(self, other: Value) -> bool | Fault:
        """Compare names."""
        return self.name == other.name if type(other) is NamedFormat else no_overload()


FORMATS: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", lambda text: _label(_masked(text)), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", lambda text: _subdomain(_masked(text)), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", lambda text: _label_1035(_masked(text)), 30),
    "labelValue": NamedFormat("LabelValue", _value, 40),
    "uri": NamedFormat("URI", _uri, _URL_SIZE),
    "uuid": NamedFormat("uuid", _uuid, _UUID_SIZE),
    "byte": NamedFormat("byte", _byte, _BASE64_SIZE),
    "date": NamedFormat("date", _date, _DATE_TIME_SIZE),
    "datetime": NamedFormat("datetime", _date_time, _DATE_TIME_SIZE),
}


def _named(name: str) -> Value:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(True, found)


def _validate(named: NamedFormat, text: str) -> Value:
    spend_work(len(text) // 4)
    faults = named.test(text)
    return Optional(True, faults) if faults else NONE


def _constant(name: str) -> Overload:
    found = FORMATS[name]
    return row(
        f"format.{name}",
        f"format.{name}",
        "-> format",
        lambda: found,
        f"format.{name}() == format.named('{name}').value()",
    )


_ESTIMATED_SIZE = 128  # characters of a format's pattern in estimates (upstream: MaxNameFormatRegexSize)


def _validation(args: list[Value], result: Value) -> int:
    if type(args[0]) is not NamedFormat:
        return 1
    return ceil((1.0 + cost_size(args[1])) * TRAVERSAL) * ceil(args[0].pattern_size * PATTERN)


def _validation_estimated(call: CallSizes) -> CallCost:
    return scale(scale(call.size(1), TRAVERSAL), _ESTIMATED_SIZE * PATTERN), None


_VALIDATION = Cost(_validation, _validation_estimated, by_name=True)

LIBRARY = Library(
    "kubernetes.format",
    (
        row("validate", "format-validate", ".format, string -> optional(list(string))", _validate,
            "!format.dns1123Label().validate('my-name').hasValue()", "format.uuid().validate('x').hasValue()",
            cost=_VALIDATION),
        row("format.named", "format-named", "string -> optional(format)", _named, "!format.named('none').hasValue()"),
        *(_constant(name) for name in FORMATS),
    ),
    since=(1, 31),
)  # fmt: skip
