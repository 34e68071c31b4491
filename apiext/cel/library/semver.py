"""Semantic versions (semver.org, version 2)."""

import re

from apiext.cel.costs import READ
from apiext.cel.effort import spend_work
from apiext.cel.overloads import Library, row
from apiext.cel.quotes import go_quote
from apiext.cel.types import SEMVER
from apiext.cel.values import INT_MAX, UINT_MAX, Fault, Special, Value, no_overload

_NUMBER = re.compile(r"[0-9]+\Z")
_WORD = re.compile(r"[0-9A-Za-z-]+\Z")
_SHORT = "short version cannot contain PreRelease/Build meta data"


class Version(Special):
    """A semantic version: its three numbers, its pre-release identifiers and its build metadata."""

    __slots__ = ("build", "numbers", "pre")
    type_name = SEMVER.name
    go_type = "cel.Semver"
    hashed = False

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[int | str, ...], build: str) -> None:
        self.numbers = numbers
        self.pre = pre
        self.build = build

    def __str__(self) -> str:
        release = ".".join(map(str, self.numbers))
        pre = f"-{'.'.join(map(str, self.pre))}" if self.pre else ""
        return release + pre + (f"+{self.build}" if self.build else "")

    def same(self, other: Value) -> bool | Fault:
        """Compare versions without their builds."""
        return order(self, other) == 0 if type(other) is Version else no_overload()


def order(one: Version, other: Version) -> int:
    """Return -1, 0 or 1 if one version is lower than, equal to or higher than the other version."""
    if one.numbers != other.numbers:
        return 1 if one.numbers > other.numbers else -1
    if not one.pre or not other.pre:
        return bool(other.pre) - bool(one.pre) if bool(one.pre) != bool(other.pre) else 0
    for a, b in zip(one.pre, other.pre, strict=False):
        if a == b:
            continue
        if isinstance(a, int) and isinstance(b, int):
            return 1 if a > b else -1
        if isinstance(a, int) != isinstance(b, int):
            return -1 if isinstance(a, int) else 1
        return 1 if str(a) > str(b) else -1
    return (len(one.pre) > len(other.pre)) - (len(one.pre) < len(other.pre))


def _number(text: str, what: str) -> int | Fault:
    if not text:
        return Fault('strconv.ParseUint: parsing "": invalid syntax')
    if not _NUMBER.match(text):
        return Fault(f"Invalid character(s) found in {what} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        return Fault(f"{what.capitalize()} number must not contain leading zeroes {go_quote(text)}")
    if len(text) > 20 or int(text) > UINT_MAX:
        return Fault(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def parse(text: str) -> Version | Fault:
    """Parse a text as a version; return upstream's fault for an invalid text."""
    if not text:
        return Fault("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        return Fault("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    patch, dash, before = rest.partition("-")
    numbers = []
    for word, what in zip((parts[0], parts[1], patch), ("major", "minor", "patch"), strict=True):
        number = _number(word, what)
        if isinstance(number, Fault):
            return number
        numbers.append(number)
    pre: list[int | str] = []
    for word in before.split(".") if dash else ():
        if not word:
            return Fault("Prerelease is empty")
        if _NUMBER.match(word):
            if len(word) > 1 and word[0] == "0":
                return Fault(f"Numeric PreRelease version must not contain leading zeroes {go_quote(word)}")
            if len(word) > 20 or int(word) > UINT_MAX:
                return Fault(f'strconv.ParseUint: parsing "{word}": value out of range')
            pre.append(int(word))
        elif _WORD.match(word):
            pre.append(word)
        else:
            return Fault(f"Invalid character(s) found in prerelease {go_quote(word)}")
    for word in build.split(".") if plus else ():
        if not word:
            return Fault("Build meta data is empty")
        if not _WORD.match(word):
            return Fault(f"Invalid character(s) found in build meta data {go_quote(word)}")
    return Version((numbers[0], numbers[1], numbers[2]), tuple(pre), build)


def _parse(text: str, tolerant: bool = False) -> Version | Fault:
    spend_work(len(text))
    if not tolerant:
        return parse(text)
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part.encode("utf-8", "surrogatepass")) > 1:
            cut = part.lstrip("0")
            parts[at] = cut if cut and cut[0] in "0123456789" else "0" + cut
    if len(parts) < 3:
        if any(sign in parts[-1] for sign in "+-"):
            return Fault(_SHORT)
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))


def _is_semver(text: str, tolerant: bool = False) -> Value:
    return type(_parse(text, tolerant)) is Version


def _as_int(number: int) -> int:
    """Return an unsigned number as Go converts it to an int."""
    return number - (1 << 64) if number > INT_MAX else number


LIBRARY = Library(
    "kubernetes.Semver",
    (
        row("semver", "string_to_semver", "string -> semver", _parse, "semver('1.2.3').major() == 1", cost=READ),
        row("semver", "string_bool_to_semver", "string, bool -> semver", _parse, "semver('v1.02', true).minor() == 2",
            cost=READ),
        row("isSemver", "is_semver_string", "string -> bool", _is_semver, "isSemver('1.0.0')", "!isSemver('1.0')",
            cost=READ),
        row("isSemver", "is_semver_string_bool", "string, bool -> bool", _is_semver, "isSemver('v1.0', true)",
            cost=READ),
        row("isGreaterThan", "semver_is_greater_than", ".semver, semver -> bool",
            lambda one, other: order(one, other) > 0,
            "semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))"),
        row("isLessThan", "semver_is_less_than", ".semver, semver -> bool", lambda one, other: order(one, other) < 0,
            "semver('1.0.0-1').isLessThan(semver('1.0.0-a'))"),
        row("compareTo", "semver_compare_to", ".semver, semver -> int", order,
            "semver('1.2.3').compareTo(semver('1.2.3+build')) == 0"),
        row("major", "semver_major", ".semver -> int", lambda version: _as_int(version.numbers[0]),
            "semver('4.5.6').major() == 4"),
        row("minor", "semver_minor", ".semver -> int", lambda version: _as_int(version.numbers[1]),
            "semver('4.5.6').minor() == 5"),
        row("patch", "semver_patch", ".semver -> int", lambda version: _as_int(version.numbers[2]),
            "semver('4.5.6').patch() == 6"),
    ),
    since=(1, 33),
)  # fmt: skip
