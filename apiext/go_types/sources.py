"""Data files of built-in kinds: types/*.yaml are written by hand; the server loads compiled/*.json.

``scripts/gen-proto`` compiles the YAML files. ``rows.json`` has the rows of all kinds; each start of the server reads
it. ``<file>.json`` has the types of one YAML file; the server reads it at the first use of one of them. Parsing YAML
instead would cost 10 ms at a start and up to 30 ms at a first use.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

ROWS = "rows"
KIND = "kind"
"""Key of a type whose value is the row of its kind; ``{}`` for a kind of subresources, which has no resource."""
USES, PACKAGE, MODELS = "uses", "package", "models"
MODEL_FILES = "models"
"""Name of the compiled file that maps each published OpenAPI model to the file of its type."""
TYPE_RULES = "type_rules"
"""Name of the compiled file with the validation rules of types."""
RULES = "rules"

_HERE = Path(__file__).parent

Table = Mapping[str, Any]


def load(name: str) -> Any:
    """Return the content of a compiled file."""
    return orjson.loads((_HERE / "compiled" / f"{name}.json").read_bytes())


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file."""
    import yaml  # late: a start without default roles reads no YAML

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster; PyYAML's wheels contain it
    return yaml.load(file.read_text(encoding="utf-8"), loader)


@cache
def digest() -> str:
    """Return a hash of all compiled files."""
    found = hashlib.blake2b(digest_size=16)
    for file in sorted((_HERE / "compiled").iterdir()):
        found.update(file.read_bytes())
    return found.hexdigest()


# --- compiling ---


def type_files() -> list[str]:
    """Return the names of the files below types/, sorted."""
    return sorted(file.stem for file in (_HERE / "types").glob("*.yaml"))


def compiled() -> dict[str, bytes]:
    """Compile types/*.yaml; return name of the compiled file → its bytes."""
    tables = {file: read_yaml(_HERE / "types" / f"{file}.yaml") for file in type_files()}
    rows = [row for file, table in tables.items() for row in rows_of(file, table)]
    found = {ROWS: _lines("[", [_text(_with_columns(row, rows)) for row in rows], "]")}
    rules = [f"{_text(name)}: {_text(found)}" for table in tables.values() for name, found in _rules(table)]
    found[TYPE_RULES] = _lines("{", rules, "}")
    found[MODEL_FILES] = _lines("{", [f"{_text(model)}: {_text(file)}" for model, file in _models(tables)], "}")
    for file, table in tables.items():
        types = types_in(table)
        found[file] = _lines("{", [f"{_text(name)}: {_text(entry)}" for name, entry in types.items()], "}")
    return found


def rows_of(file: str, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of the kinds in a file, each with its kind, file and protobuf message."""
    for name, entry in table.items():
        if isinstance(entry, dict) and entry.get(KIND):
            message = {"message": entry["message"]} if "message" in entry else {}
            yield {"kind": name, "types": file, **entry[KIND], **message}


def _models(tables: Mapping[str, Table]) -> Iterator[tuple[str, str]]:
    """Yield (published OpenAPI model, file of its type)."""
    for file, table in tables.items():
        for name, entry in table.items():
            if MODELS in table and isinstance(entry, dict):
                yield f"{table[MODELS]}.{name}", file


def _rules(table: Table) -> Iterator[tuple[str, Any]]:
    """Yield the types of a file that have validation rules."""
    yield from ((name, entry[RULES]) for name, entry in table.items() if isinstance(entry, dict) and RULES in entry)


def types_in(table: Table) -> dict[str, Any]:
    """Return the types of a file; the row of a kind is replaced by True, and rules are left out."""
    return {
        name: {word: True if word == KIND else value for word, value in entry.items() if word != RULES}
        if isinstance(entry, dict)
        else entry
        for name, entry in table.items()
    }


def _with_columns(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a row with the columns of the kind in ``stored_as``, if it has no columns of its own."""
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
