"""Apply JSON merge patches, RFC 7386 (WRI-007)."""

from typing import Any

from apiext.documents.document import Document, View, clone


def apply(document: View, patch: View, *, shared: bool = False) -> Document:
    """Return the document with the patch merged in.

    If ``shared`` is true, the result shares unchanged values with the document. Otherwise the result shares no object
    or array with the arguments.
    """
    left: Document = {**document}
    for key in patch:
        left.pop(key, None)
    merged: Document = left if shared else clone(left)
    for key, value in patch.items():
        if value is not None:
            merged[key] = _merged(document.get(key), value, shared)
    return merged


def _merged(old: Any, new: Any, shared: bool) -> Any:
    if isinstance(new, dict):
        return apply(old, new, shared=shared) if isinstance(old, dict) else _without_nulls(new)
    if isinstance(new, list):
        return clone(new) if isinstance(old, dict) else _without_nulls(new)
    return new


def _without_nulls(value: Any) -> Any:
    """Return a copy without null fields, also in objects inside arrays, as upstream does.

    Keep null elements.
    """
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
