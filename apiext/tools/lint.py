"""``apiext crd lint``: report the errors and warnings of definitions without a server.

They are the errors and warnings that creating the definition would cause.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from apiext.catalog.builtin.definitions import definitions_resource
from apiext.catalog.served import ServedVersion
from apiext.crd.definition import GROUP, KIND
from apiext.documents.document import Document
from apiext.documents.errors import DecodeError
from apiext.meta import objectmeta
from apiext.meta.fields import FieldError
from apiext.schema.budget import DEFAULTS
from apiext.text.quotes import go_quote
from apiext.tools import manifests
from apiext.tools.manifests import decode, parts
from apiext.tools.places import Places

ERROR, WARNING = "error", "warning"
MODES = ("Ignore", "Warn", "Strict")
_NAMES = {str: "string", bool: "bool", int: "number", float: "number", dict: "object"}
_LISTS = ("List", f"{KIND}List")


class Finding(Struct, frozen=True):
    """An error or warning about a definition, with file, line and the server's text.

    ``field`` is empty for a warning, and for an error about the whole document.
    """

    file: str
    line: int
    severity: str
    name: str
    field: str
    message: str

    def __str__(self) -> str:
        text = f"{self.field}: {self.message}" if self.field else self.message
        return f"{self.file}:{self.line}: {self.severity}: {text}"


class Verdict(Struct, frozen=True):
    """The errors and warnings that creating one definition would cause."""

    errors: list[FieldError]
    warnings: list[str]


def validate(document: Document, duplicates: Sequence[str], mode: str = "Warn") -> Verdict:
    """Return the errors and warnings of creating a definition.

    An error without a field concerns the whole body. ``duplicates`` are the decoder's notes about duplicate fields.
    ``mode`` is the fieldValidation parameter of the request. The function changes the document.
    """
    group, _, version = str(document.get("apiVersion", "")).rpartition("/")
    served = definitions_resource(v1beta1=True).versions.get(version)
    if served is None or group != GROUP:
        text = f'no matches for kind "{KIND}" in version "{document.get("apiVersion", "")}"'
        return Verdict([FieldError("", "", text)], [])
    warnings = [served.published.deprecation_warning] if served.published.deprecation_warning else []
    cannot = f'{KIND} in version "{version}" cannot be handled as a {KIND}'
    try:
        DEFAULTS.refill()
        decoded, unknown = served.model.normalize(document)
    except ValueError as error:
        return Verdict([FieldError("", "", f"{cannot}: {error}")], warnings)
    notes = [*duplicates, *(f"unknown field {go_quote(path)}" for path in unknown)]
    if notes and mode == "Strict":
        return Verdict([FieldError("", "", f"{cannot}: strict decoding error: {', '.join(notes)}")], warnings)
    if mode == "Warn":
        warnings += notes
    return _validated(served, decoded, warnings)


def _validated(served: ServedVersion, decoded: Document, warnings: list[str]) -> Verdict:
    new = served.endpoints[""].prepare(decoded, None)
    validation = served.validation
    errors = objectmeta.validate(new["metadata"], served.names.namespaced, validation.names)
    errors += validation.validate(new, None)
    broken, notes = validation.rules(new, None, errors)
    errors += broken
    return Verdict(errors, warnings + notes + ([] if errors else validation.warnings(new, None)))


def lint(file: str, raw: bytes, mode: str) -> Iterator[Finding | str]:
    """Yield findings about the definitions in a text, and the names of valid definitions."""
    for first, piece in parts(raw):
        places = Places(piece, first)
        try:
            document, notes = decode(piece)
        except DecodeError as error:
            yield Finding(file, first, ERROR, "", "", str(error))
            continue
        if misfit := _no_list(document):
            yield Finding(file, places.line("items"), ERROR, "", "items", misfit)
            continue
        for within, one in _definitions(document):
            name = str((one.get("metadata") or {}).get("name") or "") if isinstance(one.get("metadata"), dict) else ""
            verdict = validate(one, notes, mode)
            for wrong in verdict.errors:
                line = places.line(wrong.field or _quoted(wrong.body), within)
                yield Finding(file, line, ERROR, name, wrong.field, wrong.body)
            for text in verdict.warnings:
                yield Finding(file, places.line(_quoted(text), within), WARNING, name, "", text)
            if not verdict.errors:
                yield name


def _no_list(document: Any) -> str:
    """Return Go's error if the items of a list are not a list; empty for any other document."""
    if not isinstance(document, dict) or document.get("kind") not in _LISTS:
        return ""
    items = document.get("items")
    if items is None or isinstance(items, list):
        return ""
    return (
        f"json: cannot unmarshal {_NAMES[type(items)]} into Go struct field decodeList.items of type []json.RawMessage"
    )


def _definitions(document: Any) -> Iterator[tuple[str, Document]]:
    """Yield (path, definition) for each definition.

    A definition is the document itself, or an item of a document that is a list.
    """
    if not isinstance(document, dict):
        return
    if document.get("kind") == KIND:
        yield "", document
    elif document.get("kind") in _LISTS:
        for index, item in enumerate(document.get("items") or ()):
            if isinstance(item, dict) and item.get("kind", KIND) == KIND:
                yield f"items[{index}]", {"kind": KIND, "apiVersion": document.get("apiVersion"), **item}


def _quoted(text: str) -> str:
    """Return the field path that a warning contains in quotes; empty for other texts."""
    return text.partition('field "')[2].partition('"')[0]


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext crd``."""
    found = argparse.ArgumentParser(
        prog="apiext crd", description="Validate CustomResourceDefinitions without a server."
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser(
        "lint",
        help="report the errors and warnings that a create would return",
        description="Report the errors and warnings that a create of the definitions in these files would return, "
        "each with its file and line. The command ignores other objects. The exit code is 1 if there are errors, or if "
        "no file contains a definition.",
    )
    one.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="YAML or JSON file, directory with such files, pattern such as 'config/**/*.yaml', or - for stdin",
    )
    one.add_argument(
        "--field-validation",
        choices=MODES,
        default="Warn",
        help="how to report unknown and duplicate fields (default Warn)",
    )
    one.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: one object per line")
    one.add_argument("-q", "--quiet", action="store_true", help="do not print definitions without errors")
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command.

    Return 1 for errors, for unreadable files, or if there is no definition, else 0. For usage errors, raise SystemExit
    with 2.
    """
    options = parser().parse_args(list(arguments))
    failed, results = False, 0
    for file, is_named in manifests.found(options.files):
        try:
            raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            print(f"apiext: {file}: {error.strerror or error}", file=sys.stderr)
            failed = True
            continue
        before = results
        for found in lint("stdin" if file == "-" else file, raw, options.field_validation):
            results += 1
            if isinstance(found, Finding):
                failed |= found.severity == ERROR
                print(json.dumps(asdict(found)) if options.output == "json" else found)
            elif not options.quiet and options.output == "text":
                print(f"{file}: {found} is valid")
        if results == before and is_named and not options.quiet:
            print(f"apiext: {file} contains no {KIND}", file=sys.stderr)
    if not results and not failed:
        if options.quiet:
            print(f"apiext: no {KIND} in {', '.join(options.files)}", file=sys.stderr)
        return 1
    return int(failed)
