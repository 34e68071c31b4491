"""Load tables of cases: YAML lists in the directory of the tests.

Each row is a case with a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


class Case(dict[str, Any]):
    """One row; its keys are also attributes, and the attribute of a missing key is None."""

    def __getattr__(self, key: str) -> Any:
        return self.get(key)


class Timeless(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML in which dates are strings."""


Timeless.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path) -> Any:
    """Return a YAML document of plain values; dates are strings."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=Timeless)


def load(test_file: str, name: str) -> list[Case]:
    """Return the cases of ``cases/<name>.yaml`` in the directory of a test.

    Raise ValueError for a duplicate name.
    """
    path = Path(test_file).parent / "cases" / f"{name.removesuffix('.yaml')}.yaml"
    rows = [Case(row) for row in read(path)]
    names = [row["name"] for row in rows]
    if doubles := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path.name}: cases of one name: {sorted(doubles)}")
    return rows


def at(document: Any, path: str) -> Any:
    """Return the value at a path of names and indices that are joined by dots.

    Return None without a value.
    """
    for step in path.split("."):
        if isinstance(document, list):
            document = document[int(step)] if int(step) < len(document) else None
        else:
            document = (document or {}).get(step)
    return document


def case_name(case: Mapping[str, Any]) -> str:
    """Return the name of a case for pytest."""
    return str(case["name"])
