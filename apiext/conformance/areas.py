"""Areas of the conformance tests: their test modules and the paths that a server must serve."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

_FILE = Path(__file__).with_name("areas.yaml")


class Area(NamedTuple):
    """A row of areas.yaml."""

    name: str
    modules: tuple[str, ...]
    needs: tuple[str, ...]


@cache
def areas() -> tuple[Area, ...]:
    """Return all areas, in the order of areas.yaml."""
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return tuple(Area(row["area"], tuple(row["modules"]), tuple(row.get("needs", ()))) for row in rows)


@cache
def area_of(module: str) -> Area:
    """Return the area of a test module. Raise KeyError if the module has no area."""
    for area in areas():
        if module in area.modules:
            return area
    raise KeyError(f"areas.yaml names no area of {module}")
