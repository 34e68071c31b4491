"""The file of --config: keys are flag names.

Values have the form of the command line, such as ``port: 8080``.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from apiext.config import ConfigError
from apiext.documents.yaml_scalars import BOOLS, TAG

_LOADER: Any = yaml.CSafeLoader  # raises a YAMLError for a file that is nested too deeply
_FOREIGN = ("apiVersion", "kind")  # keys that Kubernetes' files have, and that are ignored here


def read(path: str, names: Mapping[str, str], switches: Collection[str]) -> dict[str, str]:
    """Return the value of each flag in a file; ``names`` maps keys to flags.

    A null value counts as absent; an array becomes a string with commas. YAML's words for true and false (``yes``,
    ``on``) are accepted for ``switches``. Raises ConfigError.
    """
    try:
        root = yaml.compose(Path(path).read_bytes(), Loader=_LOADER)
        return _flags(root, names, switches)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {path}: {error}") from error


def _flags(root: yaml.Node | None, names: Mapping[str, str], switches: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if root is None or _is_null(root):
        return found
    if not isinstance(root, yaml.MappingNode) or not all(isinstance(key, yaml.ScalarNode) for key, _ in root.value):
        raise ValueError("expected a mapping of flag names to values")
    for key, value in root.value:
        if key.value in _FOREIGN:
            continue
        if key.value not in names:
            raise ValueError(f"there is no flag {key.value}")
        nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(node, yaml.ScalarNode) for node in nodes):
            raise ValueError(f"{key.value}: expected one value, or a list of them")
        if not _is_null(value):
            flag, text = names[key.value], ",".join(node.value for node in nodes if not _is_null(node))
            found[flag] = _switch(value, text) if flag in switches else text
    return found


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{TAG}null"


def _switch(node: yaml.Node, text: str) -> str:
    """Convert YAML's booleans to ``true`` or ``false``; a quoted value stays as it is."""
    return str(BOOLS[text]).lower() if text in BOOLS and not getattr(node, "style", None) else text
