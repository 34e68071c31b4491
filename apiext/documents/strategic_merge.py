"""Strategic merge patch: a merge patch whose lists may merge by key (KUB-003).

Which lists merge is data: ``lists`` maps the dotted path of a list (without indices) to its merge key, or to the empty
string for a list of scalars that merges as a set. Every other list is replaced whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents.document import Document, View, clone

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
DELETE_SCALARS = "$deleteFromPrimitiveList/"


class StrategicPatchError(ValueError):
    """A patch that contradicts itself; the text is upstream's."""


def apply(document: View, patch: View, lists: Mapping[str, str]) -> Document:
    """Return the document with the patch applied; neither is changed."""
    merged = _merge_map(document, patch, lists, "")
    return merged if merged is not None else {}


def _merge_map(live: View, patch: View, lists: Mapping[str, str], path: str) -> Document | None:
    """Return the merged map, or None when the patch deletes it."""
    directive = patch.get(DIRECTIVE)
    if directive == "delete":
        return None
    if directive == "replace":
        return {key: clone(value) for key, value in patch.items() if key != DIRECTIVE}
    if directive not in (None, "merge"):
        raise StrategicPatchError(f"unknown patch type found: {directive}")
    result = dict(live)
    if RETAIN in patch:
        kept = set(patch[RETAIN])
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        where = f"{path}.{key}" if path else key
        _merge_member(result, key, value, lists, where)
    for key, wanted in patch.items():
        _special(result, key, wanted, lists, path)
    return result


def _merge_member(result: Document, key: str, value: Any, lists: Mapping[str, str], where: str) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        before = result.get(key)
        merged = _merge_map(before if isinstance(before, dict) else {}, value, lists, where)
        if merged is None:
            result.pop(key, None)
        else:
            result[key] = merged
    elif isinstance(value, list) and where in lists:
        before = result.get(key)
        result[key] = _merge_list(before if isinstance(before, list) else [], value, lists, where)
    else:
        result[key] = clone(value)


def _special(result: Document, key: str, wanted: Any, lists: Mapping[str, str], path: str) -> None:
    """Apply the directives that name a sibling list."""
    for prefix in (DELETE_SCALARS, ORDER):
        if not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        current = result.get(name)
        if not isinstance(current, list) or not isinstance(wanted, list):
            continue
        if prefix == DELETE_SCALARS:
            result[name] = [item for item in current if item not in wanted]
        else:
            result[name] = _ordered(current, wanted, lists.get(f"{path}.{name}" if path else name, ""))


def _merge_list(live: Sequence[Any], patch: Sequence[Any], lists: Mapping[str, str], where: str) -> list[Any]:
    key = lists[where]
    if not key:
        return list(live) + [clone(item) for item in dict.fromkeys(patch) if item not in live]
    if any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" and key not in item for item in patch):
        return [clone(item) for item in patch if not (isinstance(item, dict) and DIRECTIVE in item)]
    result = list(live)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise StrategicPatchError(f"map: {item} does not contain declared merge key: {key}")
        place = next((i for i, old in enumerate(result) if isinstance(old, dict) and old.get(key) == item[key]), -1)
        merged = _merge_map(result[place] if place >= 0 else {}, item, lists, where)
        if merged is None:
            if place >= 0:
                del result[place]
        elif place >= 0:
            result[place] = merged
        else:
            result.append(merged)
    return result


def _ordered(current: list[Any], wanted: Sequence[Any], key: str) -> list[Any]:
    """Return the list with the items that the order names in that order, the others where they stood."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    rank = {_hashable(identity(item)): place for place, item in enumerate(wanted)}
    named = sorted(
        (item for item in current if _hashable(identity(item)) in rank),
        key=lambda item: rank[_hashable(identity(item))],
    )
    replacements = iter(named)
    return [next(replacements) if _hashable(identity(item)) in rank else item for item in current]


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
