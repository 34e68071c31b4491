"""Split a file with manifests into documents, and decode the documents, as kubectl does."""

import glob
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from apiext.documents.encoding import decode_json, decode_yaml
from apiext.documents.errors import DecodeError

# a document may begin on the same line as its separator
_SEPARATOR = re.compile(rb"(?m)^---(?:[ \t]*(?:#.*)?\r?(?:\n|\Z)|(?=[ \t]))")
_SEVERAL = re.compile(rb"\}\s*\{")
_SKIPPED = re.compile(r"(?:\.\.\.)?[ \t\r]*(?:(?<![^ \t\r])#.*)?")  # a line without content
_SPACE = re.compile(r"\s*")
_VALUES = json.JSONDecoder()


def parts(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, text) of each non-empty document.

    Documents are separated by YAML separators, or they are consecutive JSON values.
    """
    start, line = 0, 1
    for found in (*_SEPARATOR.finditer(raw), None):
        piece = raw[start : found.start() if found else len(raw)]
        if any(text.strip() and not text.lstrip().startswith(b"#") for text in piece.splitlines()):
            yield from _values(line, piece)
        if found:
            line += raw.count(b"\n", start, found.end())
            start = found.end()


def decode(raw: bytes) -> tuple[Any, list[str]]:
    """Return the document of a part, and messages about duplicate keys. Raise DecodeError.

    A text in braces that is not valid JSON may be YAML.
    """
    if raw.lstrip()[:1] != b"{":
        return decode_yaml(raw)
    try:
        return decode_json(raw)
    except DecodeError as fault:
        try:
            # A YAML decoder would ignore text after the value. This text may be an end marker, or an error.
            if not str(fault).endswith("after top-level value") or _ends(raw.decode(errors="surrogateescape")):
                return decode_yaml(raw)
        except DecodeError:
            pass  # the error of the JSON decoder is more precise
        raise


def _ends(text: str) -> bool:
    """Return whether only comments and YAML end markers follow the JSON value in a text."""
    try:
        end = _VALUES.raw_decode(text, _following(text, 0))[1]
    except (ValueError, RecursionError):
        return False
    return all(_SKIPPED.fullmatch(line) for line in ("..." + text[end:]).split("\n"))


def _values(line: int, piece: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (line, text) of each value in a text that consists only of JSON objects.

    For any other text, yield it unchanged.
    """
    whole = line, piece
    text = piece.decode(errors="surrogateescape") if _SEVERAL.search(piece) else ""
    found, place, end = [], _following(text, 0), 0
    try:
        while text[place : place + 1] == "{":
            line, start = line + text.count("\n", end, place), place
            end = _VALUES.raw_decode(text, start)[1]
            found.append((line, text[start:end].encode(errors="surrogateescape")))
            line, place = line + text.count("\n", start, end), _following(text, end)
    except (ValueError, RecursionError):
        place = -1
    yield from found if text and place == len(text) else [whole]


def _following(text: str, place: int) -> int:
    """Return the index of the next character that is not whitespace."""
    found = _SPACE.match(text, place)
    return found.end() if found else place


SUFFIXES = (".yaml", ".yml", ".json")


def found(given: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield (file, whether an argument names exactly this file) for the arguments of a command.

    A directory stands for the YAML and JSON files in it and below it. A pattern stands for its matches, and ``-`` for
    standard input. An argument that matches no file is yielded unchanged, so that reading it fails.
    """
    for name in given:
        if name == "-" or Path(name).is_file():
            yield name, True
        elif Path(name).is_dir():
            yield from ((str(path), False) for path in sorted(Path(name).rglob("*")) if _is_manifest(path))
        elif matches := sorted(glob.glob(name, recursive=True)):
            for match in matches:
                yield from ((file, False) for file, _ in found([match]))
        else:
            yield name, True


def _is_manifest(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file()
