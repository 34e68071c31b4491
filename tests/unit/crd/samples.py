"""Definitions for tests: a small valid definition, and changes written as paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from apiext.crd.decoding import decode_v1
from apiext.documents.document import Document, clone

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
BASE: Document = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
    },
    "status": {"storedVersions": ["v1"]},
}
DNS1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
DNS1123 = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LONG = "a" * 257
_STEP = re.compile(r"[^.\[\]]+")


def changed(base: Document, sets: Mapping[str, Any] | None, removes: Sequence[str] | None = None) -> Document:
    """Return a copy of the base with values set and removed at paths.

    An example of a path is ``spec.versions[1].name``.
    """
    document: Document = clone(base)
    for path, given in (sets or {}).items():
        value = LONG if given == "<257>" else given
        holder, last = _holder(document, path)
        if isinstance(holder, list) and last == len(holder):
            holder.append(clone(value))
        else:
            holder[last] = clone(value)
    for path in removes or ():
        holder, last = _holder(document, path)
        del holder[last]
    return document


def _holder(document: Document, path: str) -> tuple[Any, Any]:
    *steps, last = [int(step) if step.isdigit() else step for step in _STEP.findall(path)]
    holder: Any = document
    for step in steps:
        holder = holder[step] if isinstance(step, int) else holder.setdefault(step, {})
    return holder, last


def definition(sets: Mapping[str, Any] | None = None, removes: Sequence[str] | None = None) -> Document:
    """Return the base definition with changes, decoded and with defaults like a request body."""
    return decode_v1(changed(BASE, sets, removes))[0]


def texts(errors: Sequence[Any]) -> list[str]:
    """Return the errors as text, sorted."""
    return sorted(str(error) for error in errors)


def expected(lines: Sequence[str] | None) -> list[str]:
    """Return the sorted lines of a case, with placeholders replaced by the long texts."""
    return sorted(
        line.replace("<dns1035>", DNS1035).replace("<dns1123>", DNS1123).replace("<257>", LONG) for line in lines or ()
    )
