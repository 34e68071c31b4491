"""Representations of an object or a list: the object itself, a Table, or its metadata only.

The rows TAB-…, PAR-… and SRV-018 of BEHAVIOUR.md list the behaviour.
"""

from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any

import orjson
from msgspec import Struct

from apiext.catalog.columns import CREATED_AT
from apiext.catalog.served import Column, Endpoint, ServedVersion
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode, encode_yaml, pretty
from apiext.http import limits, negotiation, protobuf
from apiext.http.exchange import Reply
from apiext.http.negotiation import Wanted
from apiext.meta import status
from apiext.meta.time import Ages
from apiext.storage.store import Entry
from apiext.text.quotes import go_quote

INCLUDE = frozenset(("", "None", "Metadata", "Object"))
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_INTERNAL = "Internal error occurred: "


class Subject(Struct, frozen=True):
    """The requested representation of an object or a list.

    ``wanted`` is the requested form, ``include`` the parameter includeObject of a Table. ``clock`` returns the current
    time in seconds since the epoch, for the ages in a Table.
    """

    served: ServedVersion
    endpoint: Endpoint
    wanted: Wanted
    include: str = ""
    clock: Callable[[], float] = time

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the Table."""
        return self.endpoint.model.columns

    @property
    def shows_ages(self) -> bool:
        """Report whether the representation changes with time."""
        return self.wanted.kind == "Table" and any(column.shows_age for column in self.columns)

    def ages(self) -> Ages:
        """Return a function that formats ages at the current time.

        The function is for one response, or for one event of a watch.
        """
        return Ages(self.clock())


def check_include(wanted: Wanted, value: str) -> str:
    """Return the includeObject parameter.

    Raise a 400 for an unknown value if a Table is requested. See TAB-004.
    """
    if wanted.kind == "Table" and value not in INCLUDE:
        text = f"includeObject: Invalid value: {go_quote(value)}: must be 'Metadata', 'Object', 'None', or empty"
        raise status.bad_request(f"Unable to convert to Table as requested: {text}")
    return value


# --- one object ---


def shown(subject: Subject, entry: Entry) -> bytes:
    """Return the JSON of a stored object, or of its part if the endpoint is a subresource.

    Raise a 500 if the object does not have the part in a valid form.
    """
    served, endpoint = subject.served, subject.endpoint
    if not endpoint.partial:
        return entry.view(served.codec.view)
    stored = entry.decoded(served.codec.decode)
    fault = endpoint.unreadable(stored)
    if fault:
        raise _unreadable(fault)
    return encode(endpoint.project(stored))


def _unreadable(fault: str) -> status.StatusError:
    inner = fault.removeprefix(_INTERNAL)
    return status.unknown(fault) if inner == fault else status.internal(inner)


def entry_reply(subject: Subject, entry: Entry, code: int = 200) -> Reply:
    """Return the response with a stored object in the requested representation."""
    return shown_reply(subject, shown(subject, entry), code)


def shown_reply(subject: Subject, raw: bytes, code: int = 200) -> Reply:
    """Return the response with an object (``raw``, its JSON) in the requested representation."""
    if subject.wanted.plain:
        return Reply(code, negotiation.JSON, (raw, b"\n"), compressible=True)
    if subject.wanted.pretty and not subject.wanted.kind and subject.wanted.encoding == negotiation.JSON:
        return Reply(code, negotiation.JSON, (pretty(raw),), compressible=True)
    return document_reply(subject, orjson.loads(raw), code)


def document_reply(subject: Subject, document: Document, code: int = 200) -> Reply:
    """Return the response with a document in the requested representation.

    A Status is not converted.
    """
    wanted = subject.wanted
    if wanted.kind and not status.is_status(document):
        if isinstance(document.get("items"), list) and document.get("kind") == subject.served.names.list_kind:
            metadata = {name: value for name, value in (document.get("metadata") or {}).items() if value}
            document = OF_LISTS[wanted.kind](subject, document["items"], metadata)
        else:
            document = OF_OBJECTS[wanted.kind](subject, document)
    return Reply(code, wanted.encoding, (written(wanted, document),), compressible=True)


def is_small(document: View) -> bool:
    """Report whether a document has few fields and list items, so that encoding is fast.

    This is true for each Status.
    """
    if status.is_status(document):
        return True
    left, stack = limits.MEMBERS_INLINE, list[object]([document])
    while stack and left > 0:
        value = stack.pop()
        if isinstance(value, dict):
            left -= len(value)
            stack.extend(value.values())
        elif isinstance(value, list):
            left -= len(value)
            stack.extend(value)
    return left > 0


def written(wanted: Wanted, document: View) -> bytes:
    """Return a document in the requested encoding.

    JSON ends with a newline unless it is indented. Raise a 406 for a kind that has no protobuf message.
    """
    if wanted.encoding == negotiation.YAML:
        return encode_yaml(document)
    if wanted.encoding == negotiation.PROTOBUF:
        try:
            return protobuf.encode(document)
        except KeyError as error:
            raise negotiation.not_acceptable(negotiation.ENCODINGS[:2]) from error
    raw = encode(document)
    return pretty(raw) if wanted.pretty else raw + b"\n"


def partial(version: str, document: View) -> Document:
    """Return the metadata of an object as a PartialObjectMetadata (PAR-001)."""
    return {"apiVersion": f"meta.k8s.io/{version}", "kind": PARTIAL, "metadata": document.get("metadata") or {}}


def table(subject: Subject, rows: list[Document], metadata: View) -> Document:
    """Return a Table of rows (TAB-001, TAB-004)."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{subject.wanted.version}",
        "metadata": metadata,
        "columnDefinitions": definitions(subject),
        "rows": rows or no_rows(subject),
    }


def no_rows(subject: Subject) -> list[Document] | None:
    """Return the rows of an empty Table: None for kinds with the column Created At, else [].

    kube-apiserver does the same.
    """
    return None if CREATED_AT in subject.served.model.columns else []


def definitions(subject: Subject) -> list[Document]:
    """Return the column definitions of a Table (TAB-002)."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in subject.columns
    ]


def row(subject: Subject, document: View, ages: Ages) -> Document:
    """Return the row of one object."""
    return {
        "cells": [column.shown(ages)(document) for column in subject.columns],
        "object": _ROW_OBJECTS[subject.include](subject, document),
    }


_ROW_OBJECTS: Mapping[str, Callable[[Subject, View], View | None]] = {
    "": lambda subject, document: partial(subject.wanted.version, document),
    "Metadata": lambda subject, document: partial(subject.wanted.version, document),
    "Object": lambda subject, document: _as_text(document) if subject.wanted.encoding == negotiation.JSON else document,
    "None": lambda subject, document: partial(subject.wanted.version, document) if _ends_initial(document) else None,
}


def _as_text(document: View) -> Any:
    """Encode the object of a row as JSON before its Table.

    Inside the Table, the object may be nested deeper than orjson supports.
    """
    return orjson.Fragment(encode(document))


def _ends_initial(document: View) -> bool:
    """Report whether an object is the bookmark after the initial events of a watch (TAB-004)."""
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(INITIAL_EVENTS_END) == "true")


def _table_of_object(subject: Subject, document: View) -> Document:
    revision = (document.get("metadata") or {}).get("resourceVersion")
    rows = [row(subject, document, subject.ages())]
    return table(subject, rows, {"resourceVersion": revision} if revision else {})


def _partial_of_object(subject: Subject, document: View) -> Document:
    return partial(subject.wanted.version, document)


def _list_of_object(subject: Subject, document: View) -> Document:
    served, endpoint = subject.served, subject.endpoint
    model = endpoint.model
    if not model.typed:
        raise status.unknown("content is not a list")  # as kube-apiserver
    name = f"*{model.version}.{model.kind}" if endpoint.partial else _internal(served, model.kind)
    raise status.not_acceptable(f"you requested {PARTIAL_LIST}, but the requested object is not a list ({name})")


def _internal(served: ServedVersion, kind: str) -> str:
    """Return the name of upstream's internal Go type of a built-in kind, such as ``*core.Pod``."""
    return f"*{served.names.stored_resource.group.partition('.')[0] or 'core'}.{kind}"


OF_OBJECTS: Mapping[str, Callable[[Subject, View], Document]] = {
    "Table": _table_of_object,
    PARTIAL: _partial_of_object,
    PARTIAL_LIST: _list_of_object,
}
"""Requested representation → function that converts an object to it."""


# --- lists ---


def _table_of_list(subject: Subject, items: Sequence[View], metadata: View) -> Document:
    ages = subject.ages()
    return table(subject, [row(subject, item, ages) for item in items], metadata)


def _partial_list(subject: Subject, items: Sequence[View], metadata: View) -> Document:
    version = subject.wanted.version
    return {
        "kind": PARTIAL_LIST,
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "items": [partial(version, item) for item in items] or None,  # as kube-apiserver, null if the list is empty
    }


def _partial_of_list(subject: Subject, items: Sequence[View], metadata: View) -> Document:
    served = subject.served
    name = _internal(served, served.names.list_kind) if served.model.typed else "*unstructured.UnstructuredList"
    raise status.not_acceptable(f"you requested PartialObjectMetadata, but the requested object is a list ({name})")


OF_LISTS: Mapping[str, Callable[[Subject, Sequence[View], View], Document]] = {
    "Table": _table_of_list,
    PARTIAL: _partial_of_list,
    PARTIAL_LIST: _partial_list,
}
"""Requested representation → function that converts a list to it."""
