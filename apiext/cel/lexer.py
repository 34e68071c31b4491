"""Split an expression into tokens.

The numbers and names of the kinds of tokens are those of upstream's grammar, since its error texts depend on them.
"""

import re

from apiext.cel.source import Issues

(
    EQUALS, NOT_EQUALS, IN, LESS, LESS_EQUALS, GREATER_EQUALS, GREATER, AND, OR, LBRACKET, RBRACKET, LBRACE, RBRACE,
    LPAREN, RPAREN, DOT, COMMA, MINUS, EXCLAM, QUESTION, COLON, PLUS, STAR, SLASH, PERCENT, TRUE, FALSE, NULL,
) = range(1, 29)  # fmt: skip
FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESC_IDENTIFIER = range(31, 38)
EOF = -1

SYMBOLS = {
    "==": EQUALS, "!=": NOT_EQUALS, "<": LESS, "<=": LESS_EQUALS, ">=": GREATER_EQUALS, ">": GREATER, "&&": AND,
    "||": OR, "[": LBRACKET, "]": RBRACKET, "{": LBRACE, "}": RBRACE, "(": LPAREN, ")": RPAREN, ".": DOT, ",": COMMA,
    "-": MINUS, "!": EXCLAM, "?": QUESTION, ":": COLON, "+": PLUS, "*": STAR, "/": SLASH, "%": PERCENT,
}  # fmt: skip
KEYWORDS = {"in": IN, "true": TRUE, "false": FALSE, "null": NULL}
NAMES = {number: f"'{text}'" for text, number in {**SYMBOLS, **KEYWORDS}.items()} | {
    FLOAT: "NUM_FLOAT", INT: "NUM_INT", UINT: "NUM_UINT", STRING: "STRING", BYTES: "BYTES",
    IDENTIFIER: "IDENTIFIER", ESC_IDENTIFIER: "ESC_IDENTIFIER", EOF: "<EOF>",
}  # fmt: skip

_HEX = "[0-9a-fA-F]"
_ESCAPE = rf"""\\(?:[abfnrtv"'\\?`]|[xX]{_HEX}{{2}}|u{_HEX}{{4}}|U{_HEX}{{8}}|[0-3][0-7][0-7])"""
_QUOTED = "|".join(
    (
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
_RAW = r'[rR](?:"""(?s:.)*?"""|' + r"'''(?s:.)*?'''|" + r'"[^"\n\r]*"|' + r"'[^'\n\r]*')"
_TOKEN = re.compile(
    r"(?:[\t \r\n\f]++|//[^\n]*+)*(?:"
    rf"([bB](?:{_RAW}|{_QUOTED}))"
    rf"|({_RAW}|{_QUOTED})"
    r"|([A-Za-z_][A-Za-z0-9_]*)"
    r"|([0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    rf"|(0x{_HEX}+[uU]|[0-9]+[uU])"
    rf"|(0x{_HEX}+|[0-9]+)"
    r"|(&&|\|\||==|!=|<=|>=|[<>\[\]{}().,\-!?:+*%]|/(?!/))"  # ``//`` begins a comment
    r"|(`[A-Za-z0-9_.\-/ ]+`))"
)
_KINDS = (0, BYTES, STRING, IDENTIFIER, FLOAT, UINT, INT, 0, ESC_IDENTIFIER)
_BLANK = re.compile(r"(?:[\t \r\n\f]+|//[^\n]*)*")
_PARTIAL_ESCAPE = rf"(?:\\(?:[xX]{_HEX}?|u{_HEX}{{0,3}}|U{_HEX}{{0,7}}|[0-3][0-7]?)?)?"
_PARTIAL = (
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*{_PARTIAL_ESCAPE}|\'(?:{_ESCAPE}|[^\\\'\n\r])*{_PARTIAL_ESCAPE}'
    r"|`[A-Za-z0-9_.\-/ ]*|[&|=]|"
)


class Tokens:
    """Kinds, offsets and texts of an expression's tokens; the last token is EOF."""

    __slots__ = ("kinds", "skipped", "starts", "texts")

    def __init__(self) -> None:
        self.skipped: list[tuple[int, int]] = []  # ranges of characters that belong to no token
        self.kinds: list[int] = []
        self.starts: list[int] = []
        self.texts: list[str] = []

    def between(self, text: str, first: int, last: int) -> str:
        """Return the text from one token to another, but without characters that belong to no token."""
        start = self.starts[first]
        end = self.starts[last] + (0 if self.kinds[last] == EOF else len(self.texts[last]))
        kept = ""
        for skipped, after in self.skipped:
            if start <= skipped < end:
                kept += text[start:skipped]
                start = after
        return kept + text[start:end]


def tokenize(text: str, issues: Issues) -> Tokens:
    """Return the tokens of an expression; report and skip characters that belong to no token."""
    tokens = Tokens()
    kinds, starts, texts = tokens.kinds, tokens.starts, tokens.texts
    match = _TOKEN.match
    at, end = 0, len(text)
    while True:
        found = match(text, at)
        if found is None:
            blank = _BLANK.match(text, at)
            assert blank is not None
            start = blank.end()
            if start >= end:
                break
            at = _skip(text, start, issues)
            tokens.skipped.append((start, at))
            continue
        group = found.lastindex
        assert group is not None
        word = found[group]
        if group == 3:
            kinds.append(KEYWORDS.get(word, IDENTIFIER))
        elif group == 7:
            kinds.append(SYMBOLS[word])
        else:
            kinds.append(_KINDS[group])
        starts.append(found.start(group))
        texts.append(word)
        at = found.end()
    kinds.append(EOF)
    starts.append(end)
    texts.append("<EOF>")
    return tokens


def _skip(text: str, start: int, issues: Issues) -> int:
    """Report characters that begin no token.

    Return the index after the first character that does not fit.
    """
    partial = re.compile(_PARTIAL).match(text, start)
    assert partial is not None
    failed = partial.end()
    issues.at(start, f"Syntax error: token recognition error at: '{text[start : failed + 1]}'")
    return min(failed + 1, len(text))
