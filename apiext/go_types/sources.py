"""Data files of built-in kinds.

The files types/*.yaml are written by hand; the server loads compiled/*.json. ``scripts/gen-proto`` compiles the YAML
files (``compiling.py``). ``rows.json`` has the rows of all kinds; the server reads it at its start. ``<file>.json`` has
the types of one YAML file; the server reads it at the first use of one of these types. Parsing YAML instead would take
10 ms at a start and up to 30 ms at a first use.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

ROWS = "rows"
KIND = "kind"
"""The entry of a type has this key if the type is a kind.

In YAML, its value is the row, or ``{}`` if the file has no row for the kind, as for Eviction. In compiled files, it is
true.
"""
USES, PACKAGE, MODELS = "uses", "package", "models"
MODEL_FILES = "models"
"""Name of the compiled file with: published OpenAPI model → file of its type."""
TYPE_RULES = "type_rules"
"""Name of the compiled file with: type → its validation rules."""
RULES = "rules"

_HERE = Path(__file__).parent

Table = Mapping[str, Any]


def read(name: str) -> bytes:
    """Return the bytes of a compiled file."""
    return (_HERE / "compiled" / f"{name}.json").read_bytes()


def load(name: str) -> Any:
    """Return the content of a compiled file."""
    return orjson.loads(read(name))


def read_yaml(file: Path) -> Any:
    """Return the content of a YAML file."""
    import yaml  # only default roles and scripts/gen-proto need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, part of PyYAML's wheels, is ten times faster
    return yaml.load(file.read_text(encoding="utf-8"), loader)


@cache
def digest() -> str:
    """Return a hash of the contents of all compiled files."""
    found = hashlib.blake2b(digest_size=16)
    for file in sorted((_HERE / "compiled").iterdir()):
        found.update(file.read_bytes())
    return found.hexdigest()
