"""Quote strings as Go does."""

from apiext.text.characters import all_print, is_print

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"
}  # fmt: skip


def go_quote(text: str) -> str:
    """Return the text as Go's %q prints it."""
    if all_print(text) and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or (c if is_print(c) else _escape(ord(c))) for c in text) + '"'


def _escape(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def time_quote(text: str) -> str:
    """Quote a text as Go's time package does in errors.

    Bytes below 0x20 and above 0x7f become hex escapes.
    """
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_time_character, text)) + '"'


def _time_character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if " " <= char <= "\x7f":
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="replace"))


def html_escaped(text: str) -> str:
    """Escape ``<``, ``>``, ``&``, U+2028 and U+2029 in a JSON text, as Go's encoder does."""
    return text.translate(_HTML)


_HTML = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
