"""Validate the syntax of names, labels and qualified names, with upstream's texts.

See WRI-003, VAL-013.
"""

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_UNDERSCORE = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
MAX_LABEL = 63
MAX_SUBDOMAIN = 253


def lower(text: str) -> str:
    """Return a string in lower case; as Go does, convert each character to one character."""
    return text.lower() if text.isascii() else "".join(char.lower()[0] for char in text)


def _regex_error(text: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {listed}regex used for validation is '{pattern}')"


_SUBDOMAIN_ERROR = _regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_SUBDOMAIN_OF_ANY_CASE_ERROR = _regex_error(
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character",
    _SUBDOMAIN,
    "Example.com",
)
_LABEL_ERROR = _regex_error(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_LABEL_1035_ERROR = _regex_error(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_KEY_ERROR = _regex_error(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_VALUE_ERROR = _regex_error(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_IS_LABEL = re.compile(_LABEL).fullmatch
_IS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*").fullmatch
_IS_LABEL_1035 = re.compile(_LABEL_1035).fullmatch
_IS_PORT_NAME = re.compile("[-a-z0-9]+").fullmatch
_IS_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?").fullmatch
_IS_PLAIN = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?").fullmatch


def too_long(limit: int, unit: str = "bytes") -> str:
    """Return the error text of a name that exceeds its limit.

    ``unit`` is upstream's word: bytes or characters.
    """
    return f"must be no more than {limit} {unit}"


def dns1123_label(text: str) -> list[str]:
    """Return the validation errors of an RFC 1123 label, such as a namespace name."""
    faults = _length(text, MAX_LABEL, "characters")
    if not _IS_LABEL(text):
        faults.append("must not contain dots" if dns_like(text) else _LABEL_ERROR)
    return faults


def dns1123_subdomain(text: str, unit: str = "characters") -> list[str]:
    """Return the validation errors of an RFC 1123 subdomain, such as an object name or a group.

    ``unit`` is the unit of length in the error text: characters or bytes.
    """
    faults = _length(text, MAX_SUBDOMAIN, unit)
    if not dns_like(text):
        faults.append(_SUBDOMAIN_ERROR)
    return faults


def dns1123_subdomain_of_any_case(text: str) -> list[str]:
    """Return the errors of an RFC 1123 subdomain that may have upper-case letters."""
    faults = _length(text, MAX_SUBDOMAIN, "characters")
    if not dns_like(lower(text)):
        faults.append(_SUBDOMAIN_OF_ANY_CASE_ERROR)
    return faults


def dns1035_label(text: str) -> list[str]:
    """Return the validation errors of an RFC 1035 label, such as a plural name or a version."""
    faults = _length(text, MAX_LABEL, "characters")
    if not _IS_LABEL_1035(text):
        faults.append(_LABEL_1035_ERROR)
    return faults


def dns_like(text: str) -> bool:
    """Return whether the text has the form of a subdomain, without a check of its length."""
    return _IS_SUBDOMAIN(text) is not None


def qualified_name(text: str) -> list[str]:
    """Return the validation errors of a name with an optional DNS prefix.

    Label keys and finalizers have this form.
    """
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_KEY_ERROR} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    faults: list[str] = []
    if slash:
        wrong = dns1123_subdomain(prefix, "bytes") if prefix else ["must be non-empty"]
        faults += [f"prefix part {fault}" for fault in wrong]
    faults += (
        ["name part must be non-empty"] if not name else [f"name part {fault}" for fault in _length(name, MAX_LABEL)]
    )
    if not _IS_QUALIFIED(name):
        faults.append(f"name part {_KEY_ERROR}")
    return faults


def label_value(text: str) -> list[str]:
    """Return the validation errors of a label's value."""
    faults = _length(text, MAX_LABEL)
    if text and not _IS_QUALIFIED(text):
        faults.append(_VALUE_ERROR)
    return faults


def is_plain(text: str) -> bool:
    """Report whether the text is valid both as a name without a prefix and as a label value."""
    return _IS_PLAIN(text) is not None


def path_segment(text: str) -> list[str]:
    """Return the validation errors of a name that must fit into one segment of a URL path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    if "/" not in text and "%" not in text:
        return []
    return [f"may not contain '{char}'" for char in "/%" if char in text]


def _length(text: str, limit: int, unit: str = "bytes") -> list[str]:
    size = len(text) if text.isascii() else len(text.encode())
    return [too_long(limit, unit)] if size > limit else []


def port_name(text: str) -> list[str]:
    """Return the validation errors of the name of a port."""
    checks = (
        (bool(_length(text, 15)), too_long(15, "characters")),
        (not _IS_PORT_NAME(text), "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (not re.search("[a-z]", text), "must contain at least one letter (a-z)"),
        ("--" in text, "must not contain consecutive hyphens"),
        (text[:1] == "-" or text[-1:] == "-", "must not begin or end with a hyphen"),
    )
    return [fault for fails, fault in checks if fails]


# --- formats of fields ---

_IS_UNDERSCORED = re.compile(rf"{_LABEL_UNDERSCORE}(\.{_LABEL_UNDERSCORE})*").fullmatch
_IS_HEADER = re.compile("[-A-Za-z0-9]+").fullmatch
_UNDERSCORED_ERROR = _regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    rf"{_LABEL_UNDERSCORE}(\.{_LABEL_UNDERSCORE})*",
    "example.com",
)
_HEADER_ERROR = _regex_error(
    "a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", "X-Header-Name"
)


def subdomain_with_underscores(text: str) -> list[str]:
    """Return the validation errors of a subdomain with underscores in its labels.

    Search domains may have underscores.
    """
    faults = _length(text, MAX_SUBDOMAIN, "characters")
    if not _IS_UNDERSCORED(text):
        faults.append(_UNDERSCORED_ERROR)
    return faults


def header_name(text: str) -> list[str]:
    """Return the validation errors of the name of an HTTP header."""
    return [] if _IS_HEADER(text) else [_HEADER_ERROR]


def variable_name(text: str) -> list[str]:
    """Return the validation errors of the name of an environment variable."""
    faults = [] if text else ["environment variable name must be non-empty"]
    if any(not " " <= char <= "~" or char == "=" for char in text):
        faults.append(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
        )
    return faults


def absolute_path(text: str) -> list[str]:
    """Return the validation errors of an absolute path."""
    return [] if text.startswith("/") else ["must be an absolute path"]


def path_without_backsteps(text: str) -> list[str]:
    """Return the validation errors of a path that must not contain ``..``."""
    return ["must not contain '..'"] if ".." in text.split("/") else []


def descending_path(text: str) -> list[str]:
    """Return the validation errors of a relative path without ``..``."""
    return [*(["must be a relative path"] if text.startswith("/") else []), *path_without_backsteps(text)]


def unreserved_path(text: str) -> list[str]:
    """Return the validation errors of a path of a file that a kubelet writes into a volume."""
    faults = descending_path(text)
    if text.startswith("..") and not text.startswith("../"):
        faults.append("must not start with '..'")
    return faults


def config_key(text: str) -> list[str]:
    """Return the validation errors of a key of a Secret or ConfigMap."""
    faults = _length(text, MAX_SUBDOMAIN, "characters")
    if not _IS_CONFIG_KEY(text):
        faults.append(_CONFIG_KEY_ERROR)
    if text in (".", ".."):
        faults.append(f"must not be '{text}'")
    elif text.startswith(".."):
        faults.append("must not start with '..'")
    return faults


_IS_CONFIG_KEY = re.compile("[-._a-zA-Z0-9]+").fullmatch
_CONFIG_KEY_ERROR = _regex_error(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    "[-._a-zA-Z0-9]+",
    "key.name",
    "KEY_NAME",
    "key-name",
)
