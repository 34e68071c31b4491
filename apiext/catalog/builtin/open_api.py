"""The schemas of built-in kinds, from the YAML beside this module."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def _all() -> dict[str, Any]:
    text = files(__package__).joinpath("schemas.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def open_api(kind: str) -> dict[str, Any]:
    """Return the OpenAPI schema of a built-in kind, in the form that definitions have theirs."""
    found: dict[str, Any] = _all()[kind]
    return found
