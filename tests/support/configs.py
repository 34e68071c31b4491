"""Create configurations for tests."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from apiext.config import Config

_DEFAULTS = Config(Path())
_GROUPS = {name: group for name in Config.__struct_fields__ if isinstance(group := getattr(_DEFAULTS, name), Struct)}


def config_of(data_dir: Path = Path("unused"), **fields: Any) -> Config:
    """Return a configuration with the given fields of its groups: ``port=0, ready_file="x"``."""
    groups = {name: _taken(group, fields) for name, group in _GROUPS.items() if name not in fields}
    return Config(data_dir, **groups, **fields)


def _taken(group: Struct, fields: dict[str, Any]) -> Struct:
    return type(group)(**{name: fields.pop(name) for name in group.__struct_fields__ if name in fields})
