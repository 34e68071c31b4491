"""Find the line of a field path in a file."""

import re
from typing import Any

import yaml

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_LOADER: Any = yaml.CSafeLoader
HOISTED = (  # (path in upstream's internal type, as errors name it; path in a v1 definition) (CRD-005, CRD-006)
    ("spec.validation", "spec.versions[0].schema"),
    ("spec.subresources", "spec.versions[0].subresources"),
    ("spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"),
    ("spec.selectableFields", "spec.versions[0].selectableFields"),
    ("spec.version", "spec.versions[0].name"),
    ("spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"),
    ("spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"),
    ("status.storedVersions", "spec.versions"),
)


class Places:
    """The lines of the fields in one document.

    In a text that cannot be decoded, all fields are on its first line.
    """

    def __init__(self, raw: bytes, first: int) -> None:
        self._first = first
        try:
            self._root: yaml.Node | None = yaml.compose(raw, Loader=_LOADER)
        except (yaml.YAMLError, UnicodeDecodeError):
            self._root = None

    def line(self, path: str, within: str = "") -> int:
        """Return the line of a field path below ``within``, or of its longest existing prefix."""
        if self._root is None:
            return self._first
        steps, start = _steps(path), _steps(within)
        found = self._follow([*start, *steps])
        for above, below in HOISTED:
            if steps[: len(_steps(above))] == _steps(above):
                other = self._follow([*start, *_steps(below), *steps[len(_steps(above)) :]])
                found = max(found, other)
        return self._first + found[1]

    def _follow(self, steps: list[str]) -> tuple[int, int]:
        """Return the number of leading steps that exist, and the line of the last of them.

        Lines are counted from 0.
        """
        node, line = self._root, 0
        for number, step in enumerate(steps):
            following = _member(node, step)
            if following is None:
                return number, line
            line, node = following
        return len(steps), line


def _steps(path: str) -> list[str]:
    return [inner or name for inner, name in _STEP.findall(path)]


def _member(node: yaml.Node | None, step: str) -> tuple[int, yaml.Node] | None:
    """Return (line, value) of a field or list item, None if it does not exist.

    If no field has exactly this name, upper and lower case are ignored: errors have upstream's internal names, such as
    JSONPath for jsonPath.
    """
    if isinstance(node, yaml.SequenceNode):
        if not step.isdecimal() or int(step) >= len(node.value):
            return None
        value = node.value[int(step)]
        return value.start_mark.line, value
    if isinstance(node, yaml.MappingNode):
        for same in (str, str.lower):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and same(key.value) == same(step):
                    return key.start_mark.line, value
    return None
