"""Find unclear phrases in code, documents and descriptions of built-in kinds.

In code it checks docstrings, comments, log lines and help texts. It does not check messages of errors, since those are
upstream's texts.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PHRASES = re.compile(
    # an actor without a name
    r"\b(?:who|whom|whoever|somebody|someone|nobody|no one|anybody|anyone|everybody|everyone|others)\b"
    # a clause where a noun exists
    r"|\bwhat (?:a|an|the|it|they|is|was|are|were|has|had|have|came|comes|makes|made|no|else)\b"
    # a sentence that begins with a clause
    r"|(?:(?<=\. )|\A)(?:What|Who|Whom|Whether)\b"
    # a verb that says less than "report", "return", "record" or "validate"
    r"|\A(?:Tell|Say|Have)\b|\b[Tt]ells? whether\b|\b[Tt]akes? note\b|\bjudg(?:e|es|ed|ing)\b|\breckon(?:s|ed)? with\b"
    r"|\b(?:is|are|be) (?:told|asked|meant)\b"
    # a figure of speech
    r"|\b(?:for ever|ha(?:ve|s) a say|something to say|let go|short road|closer look|brief look|met before|at a glance"
    r"|look(?:s|ed)? closer|byte rows?)\b"
)
_CODE = re.compile(r"``.*?``|`[^`\n]*`|\"[^\"\n]*\"|“[^”]*”", re.DOTALL)
_LOGS = frozenset(("debug", "info", "warning", "error", "exception", "critical"))
_DESCRIPTION = re.compile(r"(?:\bdescription: |\bdoc: |^    \w+: [^|]*\| )(.+)")
_SENTENCE = re.compile(r"(?<=[.:;])\s+")


class Found(NamedTuple):
    """One phrase: its file, its line, and the sentence that contains it."""

    path: Path
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.sentence}"


def phrases(path: Path) -> Iterator[Found]:
    """Yield the unclear phrases of a file.

    The file is a Python file, a shell script, a document, or a file of types of built-in kinds.
    """
    text = path.read_text(encoding="utf-8")
    read = _READERS.get(path.suffix) or (_of_shell if text.startswith("#!/bin/sh") else _of_python)
    for line, prose in read(text):
        for sentence in _SENTENCE.split(" ".join(_CODE.sub("…", prose).split())):
            if _PHRASES.search(sentence):
                yield Found(path, line, sentence)


def _of_document(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            yield number, line


def _of_types(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _DESCRIPTION.search(line):
            yield number, found[1]


_READERS = {".md": _of_document, ".yaml": _of_types}


def _of_shell(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            yield number, line.lstrip("# ")


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _LOGS and node.args:
                yield node.lineno, _literal(node.args[0])
            for keyword in node.keywords:
                if keyword.arg == "help":
                    yield node.lineno, _literal(keyword.value)


def _literal(node: ast.expr) -> str:
    """Return the text of a string, with … for its computed parts."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _literal(node.left) + _literal(node.right)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "…"
