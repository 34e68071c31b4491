"""Convert objects to the version of a call, with the conversion webhook if necessary.

See VER-008.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import orjson

from apiext.catalog.conversion_cache import ConversionRequest
from apiext.catalog.converted import Converted, NeedsConversion
from apiext.catalog.served import ServedVersion
from apiext.catalog.stored import Unreadable, WrongVersion
from apiext.conversion import limits as conversion_limits
from apiext.conversion.review import ConversionError
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits as storage_limits
from apiext.storage.converted_routes import ConvertedRoute
from apiext.storage.indexes import Term, select_entries
from apiext.storage.store import ConvertedEntries, Entry, Fault, ViewSource, with_views
from apiext.verbs import errors, threads
from apiext.verbs.call import Call, Verbs
from apiext.verbs.selection import Selection, by_name

log = logging.getLogger(__name__)

Keep = Callable[[Document, bytes], Converted | None]
_SHOWN = ConvertedEntries()
STEP = conversion_limits.REVIEW_OBJECTS * conversion_limits.REVIEWS_AT_ONCE


class Needed(NeedsConversion):
    """A conversion that a step of a write needs.

    ``doing`` begins the error text if the conversion fails.
    """

    __slots__ = ("doing",)

    def __init__(self, text: bytes, api_version: str, key: Hashable, keep: Keep, doing: str) -> None:
        super().__init__(text, api_version, key, keep)
        self.doing = doing


class FailedConversion(status.StatusError):
    """The error for an object that a write has read but cannot convert.

    ``raw`` are the stored bytes of the object.
    """

    __slots__ = ("raw",)

    def __init__(self, error: status.StatusError, raw: bytes) -> None:
        super().__init__(error.code, error.reason, error.message, error.details)
        self.raw = raw


def undecodable(
    verbs: Verbs, call: Call, entries: Sequence[Entry], error: Exception, *, listed: bool = False
) -> Exception:
    """Return the error of a read of stored objects that cannot be decoded or converted.

    The error may also be about an object to store or about a definition, instead of one of the entries. Then return a
    500 for a ConversionError, and any other error unchanged.
    """
    if isinstance(error, FailedConversion):
        raw = error.raw
    elif isinstance(error, ConversionError) and isinstance(error.need, ConversionRequest):
        raw = error.need.raw
    else:
        raw = b""
    entry = next((one for one in entries if one.raw == raw or _is_about(error, one)), None)
    if entry is None:
        return status.unknown(str(error)) if isinstance(error, ConversionError) else error
    fault = fault_of(verbs, call, entry, error)
    if isinstance(error, Unreadable):  # failed webhooks have metrics, and would fill the log, so they are not logged
        _log([fault])
    return errors.undecodable([fault], call.served.names.group_resource, listed=listed)


def _log(faults: Sequence[Fault]) -> None:
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    log.warning("%s at revision %d cannot be read: %s%s", faults[0].key, faults[0].revision, faults[0].reason, more)


def fault_of(verbs: Verbs, call: Call, entry: Entry, error: Exception) -> Fault:
    """Return the fault of an entry that cannot be decoded or converted."""
    keys, resource = verbs.store.keys, call.served.names.stored_resource
    key = keys.object(resource, entry.namespace, entry.name)
    return Fault(key, key[len(keys.root) - 1 :], entry.revision, str(error))


def _is_about(error: Exception, entry: Entry) -> bool:
    """Return whether an error is about this object, not about another object or a definition."""
    return isinstance(error, Unreadable) and _identity(error.stored) == _identity(orjson.loads(entry.raw))


def _identity(document: View) -> tuple[Any, Any, Any]:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return document.get("kind"), names.get("namespace"), names.get("name")


async def undecodable_list(verbs: Verbs, call: Call, entries: Sequence[Entry], error: Unreadable) -> Exception:
    """Return the error of a list with objects that cannot be decoded.

    The error names at most storage_limits.ERRORS_LISTED objects.
    """
    found, loop_budget = list[Fault](), LoopBudget()
    for entry in entries:
        await loop_budget.pause()
        try:
            entry.uncached_view(call.served.codec.view)
        except Unreadable as fault:
            if not _is_about(fault, entry):
                return fault
            found.append(fault_of(verbs, call, entry, fault))
            if len(found) == storage_limits.ERRORS_LISTED:
                break
    if not found:
        return error
    _log(found)
    return errors.undecodable(found, call.served.names.group_resource, listed=True)


@contextmanager
def explained(doing: str = "") -> Iterator[None]:
    """Turn a failed conversion into a 500 without a reason, as kube-apiserver does.

    ``doing`` is the beginning of the message.
    """
    try:
        yield
    except (ConversionError, WrongVersion) as error:
        raise status.unknown(f"{doing}{error}") from error


def enable(verbs: Verbs, call: Call) -> None:
    """Set ``call.convert``, so that write steps can convert objects (see verbs.threads)."""
    if verbs.converter is not None and not call.resource.builtin:
        call.convert = partial(_answer, verbs)  # takes the call as an argument, to avoid a reference cycle


async def _answer(verbs: Verbs, call: Call, need: NeedsConversion) -> None:
    assert verbs.converter is not None
    try:
        async with asyncio.timeout_at(call.deadline or None):
            with explained(need.doing if isinstance(need, Needed) else ""):
                await verbs.converter.convert(call.resource, [need])
    except TimeoutError as error:
        raise status.timeout(threads.DEADLINE_EXCEEDED) from error
    except status.StatusError as error:
        if isinstance(need, ConversionRequest):
            raise FailedConversion(error, need.raw) from error
        raise


async def made(verbs: Verbs, call: Call, entries: Sequence[Entry], *, listed: bool = True) -> Sequence[ViewSource]:
    """Return the objects of entries in the call's version.

    Raise a 500 if the webhook fails, or if an object cannot be decoded.
    """
    assert verbs.converter is not None
    try:
        return await verbs.converter.made(call.resource, call.served.codec.view, entries)
    except Unreadable as error:
        if listed:
            raise await undecodable_list(verbs, call, entries, error) from error
        raise undecodable(verbs, call, entries, error) from error
    except ConversionError as error:
        raise undecodable(verbs, call, entries, error, listed=listed) from error


async def shown(verbs: Verbs, call: Call, entries: Sequence[Entry], *, listed: bool = True) -> Sequence[Entry]:
    """Return the entries with their objects in the call's version; raise the errors of ``made``."""
    if not call.served.codec.converts or verbs.converter is None:
        return entries
    return with_views(entries, call.served.codec.view, await made(verbs, call, entries, listed=listed))


async def shown_one(verbs: Verbs, call: Call, entry: Entry) -> Entry:
    """Return the entry with its object in the call's version; raise the errors of ``made``."""
    return (await shown(verbs, call, (entry,), listed=False))[0]


class Stage:
    """Converts the entries of a watch before they are encoded (apiext.storage.staging.Stage)."""

    def __init__(
        self,
        verbs: Verbs,
        call: Call,
        failed: Callable[[status.StatusError], bytes],
        terms: Sequence[Term] = (),
        *,
        by_labels: bool = True,
    ) -> None:
        self._verbs = verbs
        self._terms = terms
        self._by_labels = by_labels
        self._resource = call.resource
        self._served: ServedVersion = call.served
        self._failed = failed

    def may_select(self, entry: Entry) -> bool:
        """Return whether an object may be selected, by its name and namespace."""
        return all(term.matches(entry) for term in self._terms)

    def now(self, entry: Entry) -> Entry | None:
        """Return the entry if its frames need no conversion, else None.

        The entry has the labels of the converted object if the watch selects by labels.
        """
        view = self._served.codec.view
        if self._by_labels and (found := _SHOWN.find(entry, view)) is not None:
            return found
        try:
            text = entry.view(view)
        except NeedsConversion:
            return None
        return _SHOWN.keep(entry, view, text) if self._by_labels else entry

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        """Convert entries and pass them to ``then`` in order.

        After an error, pass the ERROR frame instead.
        """
        assert self._verbs.converter is not None

        def deliver(found: Sequence[Entry] | Exception) -> None:
            if isinstance(found, Exception):
                then(self._failed(status.unknown(str(found))))
            elif self._by_labels:
                then([_SHOWN.keep(entry, view, one.view(view)) for entry, one in zip(entries, found, strict=True)])
            else:
                then(found)

        view = self._served.codec.view
        self._verbs.converter.prepare(self._resource, view, entries, deliver)

    def on_idle(self) -> None:
        """Do nothing: this stage keeps no frames, which could contain ages."""


def stage(
    verbs: Verbs, call: Call, selection: Selection, failed: Callable[[status.StatusError], bytes]
) -> Stage | None:
    """Return the stage of a watch, or None if its entries need no preparation."""
    if not call.served.codec.converts or verbs.converter is None:
        return None
    return Stage(verbs, call, failed, by_name(selection), by_labels=selection.by_labels)


def route(
    verbs: Verbs, call: Call, selection: Selection, failed: Callable[[status.StatusError], bytes]
) -> ConvertedRoute | None:
    """Return the condition by which changes are routed to a watch after their conversion.

    See storage/converted_routes.py. Return None if changes are routed by their stored objects.
    """
    term = selection.route
    if not call.served.codec.converts or verbs.converter is None or term is None or term is selection.route_unread:
        return None
    return ConvertedRoute(call.served.codec.view, Stage(verbs, call, failed), term)


async def chosen(
    verbs: Verbs, call: Call, selection: Selection, entries: Sequence[Entry], limit: int = 0
) -> list[Entry]:
    """Return the entries that are selected in the call's version.

    Return at most ``limit`` + 1 entries; a ``limit`` of 0 means no limit.
    """
    terms, found, candidates = by_name(selection), list[Entry](), entries
    if terms:
        candidates = await select_entries(entries, lambda entry: all(term.matches(entry) for term in terms))
    for start in range(0, len(candidates), STEP):
        part = await shown(verbs, call, candidates[start : start + STEP])
        found += part if selection.matches is None else await select_entries(part, selection.matches)
        if limit and len(found) > limit:
            return found[: limit + 1]
    return found
