"""Field selectors of a resource: field label → string value in an object (SEL-001)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from apiext.documents.document import View
from apiext.meta.fields import go_print

Getter = Callable[[View], str]


def selectable_fields(paths: Iterable[str], *, namespaced: bool) -> Mapping[str, Getter]:
    """Return field label → getter for metadata.name, metadata.namespace, and the paths.

    The label of a path is the path without its first dot. Only a namespaced resource has metadata.namespace.
    """
    found = {"metadata.name": _metadata("name")}
    if namespaced:
        found["metadata.namespace"] = _metadata("namespace")
    for path in paths:
        found[path.removeprefix(".")] = _getter(tuple(path.removeprefix(".").split(".")))
    return found


def _metadata(field: str) -> Getter:
    return lambda document: str((document.get("metadata") or {}).get(field, ""))


def _getter(fields: tuple[str, ...]) -> Getter:
    def get(document: View) -> str:
        value: Any = document
        for name in fields:
            if not isinstance(value, Mapping):
                return ""
            value = value.get(name)
        return "" if value is None or isinstance(value, dict | list) else go_print(value)

    return get
