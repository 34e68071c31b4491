"""Quote strings as Go does, charged to the evaluation."""

from apiext.cel.effort import spend_text, take_time
from apiext.characters import all_print, is_print

_GO_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'
}  # fmt: skip


def go_quote(text: str) -> str:
    """Return a quoted string with Go's escapes, and charge it. Raise Cancelled."""
    spend_text(len(text))
    take_time(len(text) * 2)
    return quoted(text)


def quoted(text: str) -> str:
    """Return a quoted string with Go's escapes, without a charge, for error texts."""
    if all_print(text) and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_go_character(char) for char in text) + '"'


def _go_character(char: str) -> str:
    known = _GO_ESCAPES.get(char)
    if known is not None:
        return known
    if is_print(char):
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
