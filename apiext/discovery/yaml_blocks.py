"""Values in the YAML that protobuf forms of OpenAPI hold: blocks, texts quoted where YAML 1.2 asks for it (OAS-001)."""

import re
from typing import Any

from apiext.documents.encoding import encode_in_order
from apiext.documents.yaml_scalars import resolve

_STEP = 4  # spaces of a level; members of an item stand beside its mark
_LONGEST_KEY = 128  # bytes
_SAFE = re.compile(r"[A-Za-z_$/(][\w$/().=+@~;-]*\Z", re.ASCII)
_WORDS = frozenset(("true", "True", "TRUE", "false", "False", "FALSE", "null", "Null", "NULL"))
_TIME = re.compile(
    r"[0-9]{4}-[01]?[0-9]-[0-3]?[0-9]"
    r"(?:[Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})?)?\Z"
)
_MARKED = re.compile(
    r"---|\.\.\.|[ #,\[\]{}&*!|>'\"%@`]|[?-](?:[ \t]|\Z)|(?s:.*)(?::(?:[ \t]|\Z)|[ \t]#| \Z)"
)  # begins, or has in it, what is no plain text
_SPECIAL = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\U00010000-\U0010ffff"
_UNQUOTABLE = re.compile(rf"[{_SPECIAL}\t\n]")
_NO_BLOCK = re.compile(rf"[{_SPECIAL}]| \n| \Z|\A[ \n]")  # digits of indents are not needed, nor always right
_ESCAPED = re.compile(rf'[{_SPECIAL}\t\n"\\]')
_NAMED = {"\0": "0", "\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", "\x1b": "e",
          '"': '"', "\\": "\\", "\x85": "N", "\u2028": "L", "\u2029": "P"}  # fmt: skip


def yaml(value: Any) -> str:
    """Return a value as YAML, its members in their order."""
    if isinstance(value, dict | list) and value:
        return "\n".join(_block(value, 0)) + "\n"
    return _scalar(value, _STEP) + "\n"


def _block(value: Any, indent: int) -> list[str]:
    """Return the lines of members or items at an indent."""
    lines: list[str] = []
    space = " " * indent
    if isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list) and item:
                inner = _block(item, indent + 2)
                lines.append(f"{space}- {inner[0][indent + 2 :]}")
                lines.extend(inner[1:])
            else:
                lines.append(f"{space}- {_scalar(item, indent + 2)}")
        return lines
    deeper = (indent // _STEP + 1) * _STEP
    for name, member in value.items():
        key = f"{space}{_key(name, space)}:"
        if isinstance(member, dict | list) and member:
            lines.append(key)
            lines.extend(_block(member, deeper))
        else:
            lines.append(f"{key} {_scalar(member, deeper)}")
    return lines


def _key(name: str, space: str) -> str:
    shown = _double(name) if "\n" in name else _scalar(name, 0)
    return shown if len(name.encode()) <= _LONGEST_KEY else f"? {shown}\n{space}"


def _scalar(value: Any, indent: int) -> str:
    """Return a text, number, word or nothing; lines of a block text begin at the indent."""
    if not isinstance(value, str):
        return encode_in_order(value).decode()
    if _SAFE.match(value) and value not in _WORDS:
        return value
    if "\n" in value:
        return _double(value) if _NO_BLOCK.search(value) else _literal(value, indent)
    if _is_other(value) or _UNQUOTABLE.search(value):
        return _double(value)
    return "'" + value.replace("'", "''") + "'" if _MARKED.match(value) else value


def _is_other(text: str) -> bool:
    """Tell whether a text would be read as something else by YAML 1.2, where ``yes`` is a text."""
    if text[:1].isalpha():
        return text in _WORDS
    return resolve(text).__class__ is not str or bool(_TIME.match(text))


def _literal(text: str, indent: int) -> str:
    chomp = "-" if text[-1] != "\n" else "+" if text[-2:] == "\n\n" else ""
    space = " " * indent
    lines = [f"{space}{line}" if line else "" for line in text.removesuffix("\n").split("\n")]
    return "\n".join([f"|{chomp}", *lines])


def _double(text: str) -> str:
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _NAMED:
        return f"\\{_NAMED[char]}"
    code = ord(char)
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
