"""Compile the YAML files of built-in kinds; ``scripts/gen-proto`` calls this module.

A row describes a kind. In YAML, a row is a flat mapping; its keys are called words (see ``types/README.md``). The
compiled row is divided into the parts of the class ``Row``, such as ``published``; most words belong to a part.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields

from apiext.go_types.checking import reference_errors, rule_errors, type_errors
from apiext.go_types.rows import Row
from apiext.go_types.sources import KIND, MODEL_FILES, MODELS, ROWS, RULES, TYPE_RULES, USES, Table, read_yaml
from apiext.go_types.tables import Types, build_types

OTHER_VERSIONS = "other_versions"
"""Key of a row: the differences of other versions of the same objects."""

_TYPES = Path(__file__).with_name("types")
_PARTS = {
    one.name: {word.encode_name for word in fields(one.type)}
    for one in fields(Row)
    if isinstance(one.type, type) and issubclass(one.type, msgspec.Struct)
}
"""Part of a row → the keys in YAML that belong to it."""


def type_files() -> list[str]:
    """Return the names of the files in types/ without their suffix, sorted."""
    return sorted(file.stem for file in _TYPES.glob("*.yaml"))


def read_tables() -> dict[str, Table]:
    """Return name of a file in types/ → its content."""
    return {file: read_yaml(_TYPES / f"{file}.yaml") for file in type_files()}


def types_by_file(tables: Mapping[str, Table]) -> dict[str, Types]:
    """Return name of a file → its types; raise ValueError if a file in ``uses`` does not exist."""
    for file, table in tables.items():
        for used in table.get(USES, ()):
            if used not in tables:
                raise ValueError(f"types/{file}.yaml: uses: there is no file types/{used}.yaml")

    @cache
    def built(file: str) -> Types:
        return build_types(file, lambda name: types_in(tables[name]), built)

    return {file: built(file) for file in tables}


def check(tables: Mapping[str, Table]) -> dict[str, Types]:
    """Return name of a file → its types.

    Check the types of all files, then their references, then their rules. Raise ValueError with all errors of the first
    of these checks that fails: ``types/<file>.yaml: <type>: <error>``.
    """
    files = types_by_file(tables)
    for find in type_errors, reference_errors:
        _raise(f"types/{file}.yaml: {error}" for file, types in files.items() for error in find(types))
    _raise(_all_rule_errors(tables, files))
    return files


def _raise(errors: Iterable[str]) -> None:
    text = "\n".join(errors)
    if text:
        raise ValueError(text)


def _all_rule_errors(tables: Mapping[str, Table], files: Mapping[str, Types]) -> Iterator[str]:
    ruled = frozenset(name for table in tables.values() for name, _ in _rules(table))
    for file, table in tables.items():
        places = [(name, rules) for name, rules in _rules(table)]
        places += [(row["kind"], row.get(RULES, ())) for row in rows_of(file, table)]
        for name, rules in places:
            for error in rule_errors(files[file], name, rules, ruled):
                yield f"types/{file}.yaml: {name}: {error}"


def compiled(tables: Mapping[str, Table]) -> dict[str, bytes]:
    """Compile the content of types/*.yaml; return name of a compiled file → its bytes.

    Raises ValueError, which names file and kind, for a row with an unknown word or a value of a wrong type.
    """
    rows = [row for file, table in tables.items() for row in rows_of(file, table)]
    found = {ROWS: _lines("[", [_text(_row_in_file(_with_columns(row, rows))) for row in rows], "]")}
    rules = [f"{_text(name)}: {_text(found)}" for table in tables.values() for name, found in _rules(table)]
    found[TYPE_RULES] = _lines("{", rules, "}")
    found[MODEL_FILES] = _lines("{", [f"{_text(model)}: {_text(file)}" for model, file in _models(tables)], "}")
    for file, table in tables.items():
        types = types_in(table)
        found[file] = _lines("{", [f"{_text(name)}: {_text(entry)}" for name, entry in types.items()], "}")
    return found


def rows_of(file: str, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of the kinds in a file.

    Each row gets its kind, file, and protobuf message, if specified.
    """
    for name, entry in table.items():
        if isinstance(entry, dict) and entry.get(KIND):
            message = {"message": entry["message"]} if "message" in entry else {}
            yield {"kind": name, "types": file, **entry[KIND], **message}


def _row_in_file(words: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return row_of(words)
    except msgspec.ValidationError as error:
        raise ValueError(f"types/{words['types']}.yaml: {words['kind']}: {error}") from error


def row_of(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the form of ``rows.json``.

    The result has the parts of ``Row``, and complete rows of other versions. Raises msgspec.ValidationError for an
    unknown word, or a value of a wrong type.
    """
    words = dict(words)
    others = words.pop(OTHER_VERSIONS, ())
    row: dict[str, Any] = {}
    for word, value in words.items():
        part = next((part for part, known in _PARTS.items() if word in known), None)
        (row if part is None else row.setdefault(part, {}))[word] = value
    if others:
        stored = {"stored_version": words.get("stored_version") or words["version"]}
        row["others"] = [row_of({**words, **other, **stored}) for other in others]
    msgspec.convert(row, Row)
    return row


def _models(tables: Mapping[str, Table]) -> Iterator[tuple[str, str]]:
    """Yield (name of a published OpenAPI model, file with its type)."""
    for file, table in tables.items():
        for name, entry in table.items():
            if MODELS in table and isinstance(entry, dict):
                yield f"{table[MODELS]}.{name}", file


def _rules(table: Table) -> Iterator[tuple[str, Any]]:
    """Yield (name, rules) of each type in a file that has validation rules."""
    yield from ((name, entry[RULES]) for name, entry in table.items() if isinstance(entry, dict) and RULES in entry)


def types_in(table: Table) -> dict[str, Any]:
    """Return the types of a file without validation rules, and with True in place of each row."""
    return {
        name: {word: True if word == KIND else value for word, value in entry.items() if word != RULES}
        if isinstance(entry, dict)
        else entry
        for name, entry in table.items()
    }


def _with_columns(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row. If it has no columns, add those of the kind that ``stored_as`` names."""
    if "stored_as" not in row or "columns" in row:
        return row
    stored = row["stored_as"]
    own = next(one for one in rows if (one.get("group", ""), one["resource"]) == (stored["group"], stored["resource"]))
    return {**row, "columns": own["columns"]}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(begin: str, parts: list[str], end: str) -> bytes:
    """Return JSON with one line for each part, so that diffs are readable."""
    return "".join([begin, "\n", ",\n".join(parts), "\n", end, "\n"]).encode()
