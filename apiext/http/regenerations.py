"""Counts how often OpenAPI documents are made anew because of a definition, under upstream's names (OAS-009)."""

from collections.abc import Callable, Mapping

from apiext.http import limits
from apiext.telemetry import Family, Telemetry


class Regenerations:
    """Compares each document that is made with the one before it, and counts the definitions that made it another."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._made: dict[str, tuple[str, Mapping[str, bytes]]] = {}  # document → its ETag, and what it was made of
        self._v2 = Family(
            "apiextensions_openapi_v2_regeneration_count",
            "counter",
            "Counter of OpenAPI v2 spec regeneration count broken down by causing CRD name and reason.",
            ("crd", "reason"),
        )
        self._v3 = Family(
            "apiextensions_openapi_v3_regeneration_count",
            "counter",
            "Counter of OpenAPI v3 spec regeneration count broken down by group, version, causing CRD and reason.",
            ("group", "version", "crd", "reason"),
        )
        telemetry.add(self._v2)
        telemetry.add(self._v3)

    def v2(self, tag: str, made_of: Callable[[], Mapping[str, bytes]]) -> None:
        """Take note of the document of OpenAPI v2; ``made_of()`` tells its definitions with what was used of each."""
        for definition, reason in self._differences("v2", tag, made_of):
            self._v2.slot(definition, reason).value += 1

    def v3(self, path: str, tag: str, made_of: Callable[[], Mapping[str, bytes]]) -> None:
        """Take note of a document of OpenAPI v3; ``path`` is its name in the index."""
        _, _, group_version = path.partition("/")
        group, _, version = group_version.rpartition("/")
        for definition, reason in self._differences(path, tag, made_of):
            self._v3.slot(group, version, definition, reason).value += 1

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Forget documents that are gone, by name."""
        for name in [name for name in self._made if gone(name)]:
            del self._made[name]

    def _differences(self, name: str, tag: str, made_of: Callable[[], Mapping[str, bytes]]) -> list[tuple[str, str]]:
        before_tag, before = self._made.get(name, ("", {}))
        if before_tag == tag:
            return []
        if len(self._made) >= limits.PUBLISHED_PATHS:
            for forgotten in (self._made, self._v2, self._v3):
                forgotten.clear()
        after = made_of()
        self._made[name] = (tag, after)
        changed = [(one, "update" if one in before else "add") for one in after if before.get(one) != after[one]]
        return changed + [(one, "remove") for one in before if one not in after]
