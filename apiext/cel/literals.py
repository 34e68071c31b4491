"""Find the string literals of an expression without parsing it."""

from collections.abc import Iterator

from apiext.cel.lexer import STRING, tokenize
from apiext.cel.source import Issues, Source, UnescapeError, unescape_literal


def string_literals(text: str) -> Iterator[str]:
    """Yield the values of the string literals of an expression, without invalid literals."""
    tokens = tokenize(text, Issues(Source(text)))
    for kind, token in zip(tokens.kinds, tokens.texts, strict=True):
        if kind == STRING:
            try:
                value = unescape_literal(token, False)
            except UnescapeError:
                continue
            if isinstance(value, str):
                yield value
