"""Apply strategic merge patches: merge patches whose arrays may merge by key (KUB-003).

``lists`` maps the dotted path of an array (without indices) to its merge key. An empty key stands for an array of
scalars that merges as a set. A patch replaces an array whose path is not in ``lists``, and a map whose path has the
value REPLACED.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import encode

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder"
DELETE_SCALARS = "$deleteFromPrimitiveList"
REPLACED = "$replaced"
"""Value in ``lists`` of a map that a patch replaces, together with the directives and nulls in the patch."""

_DROPPED = object()  # stands for a value that is a directive, and for a missing merge key
_GO_TYPES = {
    dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64",
    float: "float64", type(None): "%!s(<nil>)",
}  # fmt: skip
_NO_TEXT = {kind: f"%!s({_GO_TYPES[kind]}={{}})" for kind in (bool, int, float)} | {type(None): "%!s({})"}


class StrategicPatchError(ValueError):
    """The error of an invalid patch.

    The text is upstream's, with the placeholder ``{}`` for each JSON value.
    """

    def __init__(self, text: str, *values: Any) -> None:
        super().__init__(text)
        self._values = values

    def text_with(self, show: Callable[[Any], str]) -> str:
        """Return the text with its values printed by ``show``."""
        text = str(self)
        return text.format(*map(show, self._values)) if self._values else text


def apply(document: View, patch: View, lists: Mapping[str, str]) -> Document:
    """Return the document with the patch applied; do not change the arguments."""
    return _merge_map(document, clone(patch), lists, "")


def remainder(document: View, patch: View, lists: Mapping[str, str]) -> Document:
    """Return the rest of a patch: upstream deletes parts of the patch while it merges.

    Upstream's error messages quote this rest.
    """
    used: Document = clone(patch)
    _merge_map(document, used, lists, "")
    return used


def _merge_map(live: View, patch: Document, lists: Mapping[str, str], path: str) -> Document:
    """Return the merged map.

    Delete from the patch: ``$retainKeys``, ``$setElementOrder`` and the array that it names, ``$patch: replace``, and
    the nulls inside a map or array whose field, in the live object, is missing or has another type.
    """
    if DIRECTIVE in patch:
        return _directed(patch)
    result = _retained(live, patch)
    patch.pop(RETAIN, None)
    for key, order in tuple(patch.items()):
        if key.startswith(ORDER):
            _set_order(result, patch, key, order, lists, path)
    for key, value in patch.items():
        if key.startswith(DELETE_SCALARS):
            _delete_scalars(result, _list_named(key, DELETE_SCALARS, "primitive list"), value, lists, path)
        else:
            _merge_member(result, key, value, lists, f"{path}.{key}" if path else key)
    return result


def _directed(patch: Document) -> Document:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        del patch[DIRECTIVE]
        return {key: clone(value) for key, value in patch.items()}
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _unknown_directive(directive: Any, given: View) -> StrategicPatchError:
    shown = _NO_TEXT.get(directive.__class__, "{}")
    return StrategicPatchError(f"unknown patch type: {shown} in map: {{}}", directive, given)


def _retained(live: View, patch: View) -> Document:
    """Return the live fields that ``$retainKeys`` of the patch retains.

    Without this directive, return all live fields.
    """
    kept = patch.get(RETAIN)
    if RETAIN not in patch:
        return dict(live)
    given = [
        key
        for key, value in patch.items()
        if key != RETAIN and value is not None and not key.startswith((ORDER, DELETE_SCALARS))
    ]
    retained = {key for key in kept if isinstance(key, str)} if isinstance(kept, list) else None
    if retained is None or not retained.issuperset(given):
        raise StrategicPatchError("invalid patch format of retainKeys")
    return {key: value for key, value in live.items() if key in retained}


def _merge_member(result: Document, key: str, value: Any, lists: Mapping[str, str], where: str) -> None:
    before = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict) and isinstance(before, dict):
        result[key] = clone(value) if lists.get(where) == REPLACED else _merge_map(before, value, lists, where)
    elif isinstance(value, list) and isinstance(before, list):
        result[key] = _merge_list(before, value, lists, where) if where in lists else clone(value)
    else:
        _discard_nulls(value)
        fresh = _without_directives(value)
        if fresh is _DROPPED:
            result.pop(key, None)
        else:
            result[key] = fresh


def _discard_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for key in [key for key, member in value.items() if member is None]:
            del value[key]
    if isinstance(value, (dict, list)):
        for below in value.values() if isinstance(value, dict) else value:
            _discard_nulls(below)


def _without_directives(value: Any) -> Any:
    """Return a new value without null fields, and without items and maps that are directives.

    Return _DROPPED if the value itself is a directive.
    """
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _DROPPED
        members = {key: _without_directives(member) for key, member in value.items() if member is not None}
        return {key: member for key, member in members.items() if member is not _DROPPED}
    if isinstance(value, list):
        return [item for item in map(_without_directives, value) if item is not _DROPPED]
    return value


# --- directives that stand beside their array, in the same map ---


def _list_named(key: str, prefix: str, what: str) -> str:
    """Return the name of the array that a directive names."""
    found, slash, name = key.partition("/")
    if found != prefix or not slash:
        raise StrategicPatchError(f"invalid patch format of {what}")
    return name


def _delete_scalars(result: Document, name: str, gone: Any, lists: Mapping[str, str], path: str) -> None:
    current = result.get(name)
    if gone is None:
        result.pop(name, None)
    elif not isinstance(current, list) or not isinstance(gone, list) or not (current or gone):
        return
    elif _element_type(current, gone) is dict:  # upstream: items that are maps are merged, not deleted
        result[name] = _merge_list(current, gone, lists, f"{path}.{name}" if path else name)
    else:
        named = {_hashable(item) for item in gone}
        result[name] = [item for item in current if _hashable(item) not in named]


def _set_order(result: Document, rest: Document, key: str, order: Any, lists: Mapping[str, str], path: str) -> None:
    """Merge the array that ``$setElementOrder`` names, and sort it by this order.

    Delete the directive and the array from ``rest``, which is the patch.
    """
    del rest[key]
    if not isinstance(order, list):
        raise _wrong_type(list, order)
    name = _list_named(key, ORDER, "setElementOrder list")
    where = f"{path}.{name}" if path else name
    for one in (result, rest):
        if name in one and not isinstance(one[name], list):
            raise _wrong_type(list, one[name])
    live, patch = result.get(name), rest.pop(name, None)
    merge_key = lists.get(where, "")
    _check_order(patch or [], order, merge_key)
    if live is None and patch is None:
        return
    if live is None:
        merged = _without_directives(patch)
    elif patch is None:
        merged = live
    else:
        merged = _merge_list(live, patch, lists, where) if where in lists else patch
    _element_type(live or [], patch or [])
    result[name] = _ordered(merged, order, live or [], merge_key)


def _check_order(patch: Sequence[Any], order: Sequence[Any], merge_key: str) -> None:
    """Raise StrategicPatchError if the items of ``patch`` are not in the order of ``order``."""
    if not patch or not order:
        return
    wanted = [item for item in patch if not (isinstance(item, dict) and DIRECTIVE in item)]
    places = iter([_identity(item, merge_key) for item in order])
    # each search in the iterator continues after the previous match
    if not all(_identity(item, merge_key) in places for item in wanted):
        text = f"The order in patch list:\n{{}}\n doesn't match {ORDER} list:\n{{}}\n"
        raise StrategicPatchError(text, list(patch), list(order))


# --- arrays ---


def _merge_list(live: Sequence[Any], patch: Sequence[Any], lists: Mapping[str, str], where: str) -> list[Any]:
    if not live and not patch:
        return []
    if _element_type(live, patch) is not dict:
        found: dict[Hashable, Any] = {}
        for item in (*live, *patch):
            found.setdefault(_hashable(item), item)
        return _ordered(list(found.values()), patch, live, "")
    key = lists.get(where)
    if not key:
        raise StrategicPatchError("cannot merge lists without merge key for struct")
    live, items = _special_items(live, patch, key)
    result = list(live)
    places = _positions(_hashable(item.get(key, _DROPPED)) for item in result)
    for item in items:
        place = places.setdefault(_identity(item, key), len(result))
        if place == len(result):
            result.append(item)
        else:
            result[place] = _merge_map(result[place], item, lists, where)
    return _ordered(result, items, live, key)


def _special_items(live: Sequence[Any], patch: Sequence[Any], key: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return (live items without deleted items, items of the patch without directives).

    If an item of the patch has the directive ``replace``, the items of the patch become the live items.
    """
    items = [item for item in patch if DIRECTIVE not in item]
    gone: set[Hashable] = set()
    for item in patch:
        directive = item.get(DIRECTIVE)
        if directive == "delete":
            gone.add(_identity(item, key))
        elif directive == "merge":
            raise StrategicPatchError("merging lists cannot yet be specified in the patch")
        elif DIRECTIVE in item and directive != "replace":
            raise _unknown_directive(directive, item)
    replaced = any(item.get(DIRECTIVE) == "replace" for item in patch)
    kept = [one for one in live if _hashable(one.get(key, _DROPPED)) not in gone] if gone else live
    return (items, []) if replaced else (kept, items)


def _ordered(merged: Sequence[Any], order: Sequence[Any], live: Sequence[Any], key: str) -> list[Any]:
    """Return copies of all items: those of ``order`` in its order, other items as in ``live``.

    An item of ``order`` follows those other items that precede it in ``live``. Other items that are not in ``live`` are
    last.
    """
    wanted = _positions(_identity(item, key) for item in order)
    before = _positions(_identity(item, key) for item in live)
    last = len(live)
    named = [(_identity(item, key), item) for item in merged]
    ours = sorted((pair for pair in named if pair[0] in wanted), key=lambda pair: wanted[pair[0]])
    others = (pair for pair in named if pair[0] not in wanted)
    theirs = deque(sorted(others, key=lambda pair: before.get(pair[0], last)))
    found: list[Any] = []
    for identity, item in ours:
        while theirs and before.get(theirs[0][0], last) < before.get(identity, 0):
            found.append(clone(theirs.popleft()[1]))
        found.append(clone(item))
    return found + [clone(item) for _, item in theirs]


def _positions(identities: Iterable[Hashable]) -> dict[Hashable, int]:
    """Return identity → its first position."""
    found: dict[Hashable, int] = {}
    for place, identity in enumerate(identities):
        found.setdefault(identity, place)
    return found


def _element_type(*lists: Sequence[Any]) -> type:
    """Return the common class of the items of all arrays.

    Raise StrategicPatchError if the classes differ, if there is no item, or if the first item is an array.
    """
    types = list(dict.fromkeys(item.__class__ for items in lists for item in items))
    if not types:
        raise StrategicPatchError("no elements in any of the given slices")
    if types[0] is list:
        raise StrategicPatchError("lists of lists are not supported")
    if len(types) > 1:
        raise StrategicPatchError("list element types are not identical: {}", [list(items) for items in lists])
    found: type = types[0]
    return found


def _identity(item: Any, key: str) -> Hashable:
    """Return the identity of an item: the value of its merge key, or the item itself."""
    if not isinstance(item, dict):
        if not key:
            return _hashable(item)
        raise _wrong_type(dict, item)
    # Without a merge key, this server raises the error of a map that lacks its merge key.
    if not key or key not in item:  # upstream: an order of maps without a merge key causes a panic
        raise StrategicPatchError(f"map: {{}} does not contain declared merge key: {key}", item)
    return _hashable(item[key])


def _hashable(value: Any) -> Hashable:
    return value if value is _DROPPED or isinstance(value, str) else encode(value)


def _wrong_type(wanted: type, given: Any) -> StrategicPatchError:
    return StrategicPatchError(f"expected a {_GO_TYPES[wanted]}, but received a {_GO_TYPES[given.__class__]}")
