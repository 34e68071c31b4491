"""Objects as the version of a call shows them when that takes a webhook: what the other verbs await (VER-008)."""

import asyncio
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from apiext import limits
from apiext.catalog.converted import Converted, NeedsConversion
from apiext.catalog.served import ServedVersion
from apiext.catalog.stored import WrongVersion
from apiext.conversion.review import ConversionError
from apiext.documents.document import Document
from apiext.meta import status
from apiext.storage.indexes import chosen_of
from apiext.storage.store import Entry, Made, Ready, held
from apiext.verbs import threads
from apiext.verbs.call import Call, Verbs
from apiext.verbs.selection import Selection, by_name

Keep = Callable[[Document, bytes], Converted | None]
STEP = limits.REVIEW_OBJECTS * limits.REVIEWS_AT_ONCE


class Needed(NeedsConversion):
    """A conversion that a step of a write needs; ``doing`` begins what the client reads when it fails."""

    __slots__ = ("doing",)

    def __init__(self, text: bytes, api_version: str, key: Hashable, keep: Keep, doing: str) -> None:
        super().__init__(text, api_version, key, keep)
        self.doing = doing


@contextmanager
def explained(doing: str = "") -> Iterator[None]:
    """Turn a conversion that failed into what the client reads: a 500 without a reason (recorded)."""
    try:
        yield
    except (ConversionError, WrongVersion) as error:
        raise status.unknown(f"{doing}{error}") from error


def enable(verbs: Verbs, call: Call) -> None:
    """Let the steps of a write have objects converted (verbs.threads)."""
    if verbs.converter is not None and not call.resource.builtin:
        call.convert = partial(_answer, verbs, call)


async def _answer(verbs: Verbs, call: Call, need: NeedsConversion) -> None:
    assert verbs.converter is not None
    try:
        async with asyncio.timeout_at(call.deadline or None):
            with explained(need.doing if isinstance(need, Needed) else ""):
                await verbs.converter.answer(call.resource, [need])
    except TimeoutError as error:
        raise status.timeout(threads.OVER) from error


async def made(verbs: Verbs, call: Call, entries: Sequence[Entry]) -> Sequence[Made]:
    """Return what the call's version shows of entries; 500 when the webhook fails."""
    assert verbs.converter is not None
    with explained():
        return await verbs.converter.made(call.resource, call.served.view, entries)


async def shown(verbs: Verbs, call: Call, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return entries that the call's version shows without waiting; 500 when the webhook fails."""
    if not call.served.converts or verbs.converter is None:
        return entries
    return held(entries, call.served.view, await made(verbs, call, entries))


async def shown_one(verbs: Verbs, call: Call, entry: Entry) -> Entry:
    """Return one such entry."""
    return (await shown(verbs, call, (entry,)))[0]


class Stage:
    """Makes the entries of a watch ready for its frames (apiext.storage.watching.Stage)."""

    def __init__(
        self, verbs: Verbs, call: Call, selection: Selection, failed: Callable[[status.StatusError], bytes]
    ) -> None:
        self._verbs = verbs
        self._terms = by_name(selection)
        self._by_labels = selection.by_labels
        self._resource = call.resource
        self._served: ServedVersion = call.served
        self._failed = failed

    def concerns(self, entry: Entry) -> bool:
        """Tell whether an object may be selected, by its name and namespace."""
        return all(term.matches(entry) for term in self._terms)

    def now(self, entry: Entry) -> Entry | None:
        """Return the entry if frames can be made of it at once; with the labels of what is shown, if they count."""
        view = self._served.view
        try:
            text = entry.view(view)
        except NeedsConversion:
            return None
        return held((entry,), view, (Ready(text, entry.revision),))[0] if self._by_labels else entry

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        """Have entries shown and hand them over in their order; or the frame of the ERROR that ends the watch."""
        assert self._verbs.converter is not None

        def told(found: Sequence[Entry] | Exception) -> None:
            if isinstance(found, Exception):
                then(self._failed(status.unknown(str(found))))
            else:
                then(found)

        self._verbs.converter.prepare(self._resource, self._served.view, entries, told)

    def rest(self) -> None:
        """Do nothing: converted objects are cached elsewhere, and show no ages."""


def stage(
    verbs: Verbs, call: Call, selection: Selection, failed: Callable[[status.StatusError], bytes]
) -> Stage | None:
    """Return what makes entries ready for a watch, None when they always are."""
    return Stage(verbs, call, selection, failed) if call.served.converts and verbs.converter is not None else None


async def chosen(
    verbs: Verbs, call: Call, selection: Selection, entries: Sequence[Entry], limit: int = 0
) -> list[Entry]:
    """Return the entries that are selected as the call's version shows them; one more than a limit at most."""
    terms, found, candidates = by_name(selection), list[Entry](), entries
    if terms:
        candidates = await chosen_of(entries, lambda entry: all(term.matches(entry) for term in terms))
    for start in range(0, len(candidates), STEP):
        part = await shown(verbs, call, candidates[start : start + STEP])
        found += part if selection.matches is None else await chosen_of(part, selection.matches)
        if limit and len(found) > limit:
            return found[: limit + 1]
    return found
