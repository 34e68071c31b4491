"""Calls conversion webhooks: one call for all who wait for an object, lists in bounded reviews (VER-004…012)."""

import asyncio
import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter
from time import perf_counter
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import orjson
from msgspec import Struct
from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.catalog.converted import Ask, Converted, NeedsConversion, unknown
from apiext.catalog.served import ServedResource
from apiext.conversion import limits, review
from apiext.conversion.metrics import Metrics
from apiext.conversion.review import CALL, INVALID_OBJECT, ConversionError
from apiext.documents.document import View
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.store import Entry, Made, Ready, Viewer, held, stored
from apiext.webhooks import limits as webhooks_limits
from apiext.webhooks.errors import CallError
from apiext.webhooks.target import Target, target_of

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
STOPPING = "the server is stopping"
_ASKER, _TEXT = attrgetter("asker"), attrgetter("text")
_NEEDS_AT_ONCE = limits.REVIEW_OBJECTS * limits.REVIEWS_AT_ONCE
_BYTES_AT_ONCE = limits.REVIEW_BYTES * limits.REVIEWS_AT_ONCE


class Poster(Protocol):
    """The client of webhooks (apiext.webhooks.client.Client)."""

    async def post(self, target: Target, body: bytes, timeout: float, *, owner: str, most: int) -> bytes:
        """POST JSON and return the answer's body; raises CallError."""


class _Hook(Struct):
    """The webhook of one definition as it is configured, and how many requests wait for it."""

    settings: View
    name: str
    owner: str
    waiting: int = 0
    place: Target | None = None

    @property
    def target(self) -> Target:
        """Return the target of the webhook; raise BadTarget for settings without a valid one."""
        if self.place is None:
            found = target_of(self.settings.get("clientConfig") or {})
            self.place = found if found.ca.strip() else replace(found, ca=b"")  # upstream: a blank bundle is none
        return self.place


class Converter:
    """Converts objects by the webhooks of their definitions; one for each server.

    NeedsConversion says where answers are cached. A call goes on after its request was cancelled, since other requests
    may wait for it.
    """

    def __init__(self, poster: Poster) -> None:
        self.metrics = Metrics()
        self._poster = poster
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._flights: dict[Hashable, _Flight] = {}
        self._hooks: dict[tuple[str, str], _Hook] = {}
        self._generation = 0

    def start(self, group: asyncio.TaskGroup) -> None:
        """Make calls in this group from now on."""
        self._group = group

    async def stop(self) -> None:
        """Cancel the calls in flight; their waiters get ConversionError."""
        self._group = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for flight in set(self._flights.values()):  # calls whose task has not begun
            flight.land(ConversionError(review.failed(flight.needs[0].document, STOPPING), CALL))
        self._flights.clear()

    async def made(
        self, resource: ServedResource, viewer: Viewer, entries: Sequence[Entry], *, request: bool = True
    ) -> list[Made]:
        """Return the views of entries, and call a webhook for objects that are not cached.

        ``request`` if a request waits, of which there may be limits.CONVERSIONS_WAITING. Raises ConversionError, and
        the errors of the viewer.
        """
        found: list[Made] = []
        part: list[Made | NeedsConversion] = []
        needs: list[NeedsConversion] = []
        start, size, loop_budget = 0, 0, LoopBudget()
        asked: Ask = unknown  # the webhook for several objects is not known yet
        while start < len(entries):
            await loop_budget.pause()
            some = entries[start : start + min(limits.CONVERTED_UNSEEN, _NEEDS_AT_ONCE - len(needs))]
            start += len(some)
            raws = stored(some)
            for entry, answer in zip(some, asked(raws), strict=True):
                if answer is not None:
                    part.append(answer)
                    continue
                try:
                    part.append(Ready(entry.shown(viewer), entry.revision))
                except NeedsConversion as need:
                    part.append(need.with_traceback(None))  # it holds frames
                    asked = need.others
            needs += [one for one in part[-len(some) :] if isinstance(one, NeedsConversion)]
            size += sum(map(len, raws)) if needs else 0
            if len(needs) == _NEEDS_AT_ONCE or size >= _BYTES_AT_ONCE:
                found += _filled(part, await self.answer(resource, needs, request=request))
                part, needs, size = [], [], 0
        found += _filled(part, await self.answer(resource, needs, request=request))
        return found

    def prepare(
        self,
        resource: ServedResource,
        viewer: Viewer,
        entries: Sequence[Entry],
        then: Callable[[Sequence[Entry] | Exception], None],
    ) -> None:
        """Have entries shown in the background, and hand them over in their order, or what went wrong."""

        async def work() -> None:
            try:
                made = await self.made(resource, viewer, entries, request=False)
                found: Sequence[Entry] | Exception = held(entries, viewer, made)
            except Exception as error:  # whatever it is, it is handed over
                found = error
            try:
                then(found)
            except Exception:  # outermost: one watch must not end the task group of all
                log.exception("a conversion for a watch could not be used")

        if self._group is not None:
            self._spawn(self._group, work())

    def _spawn(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        task = group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(
        self, resource: ServedResource, needs: Sequence[NeedsConversion], *, request: bool = True
    ) -> list[Converted | None]:
        """Have everything converted that is needed, and return what was kept of it; raises ConversionError."""
        if not needs:
            return []
        hook = self._hook(resource)
        if request and hook.waiting >= limits.CONVERSIONS_WAITING:
            text = f"{hook.waiting} requests are waiting for its answers already"
            raise ConversionError(review.failed(needs[0].document, text), CALL)
        keys = [need.key for need in needs]
        flights = self._fly(hook, needs, keys)
        abroad = set(flights)
        kept: dict[Hashable, Converted | None] = {}
        hook.waiting += request
        try:
            while abroad:
                await asyncio.wait([flight.done for flight in abroad], return_when=asyncio.FIRST_COMPLETED)
                down = [flight for flight in abroad if flight.done.done()]
                if any(flight.error or flight.failures for flight in down):
                    for need, flight in zip(needs, flights, strict=True):
                        flight.check(need)
                for flight in down:
                    kept |= flight.kept
                abroad.difference_update(down)
        finally:
            hook.waiting -= request
        return [kept[key] for key in keys]

    def _fly(self, hook: _Hook, needs: Sequence[NeedsConversion], keys: Sequence[Hashable]) -> "list[_Flight]":
        """Return the review that brings each answer; start reviews for objects that no call requests yet."""
        known = self._flights
        fresh = needs if known.keys().isdisjoint(keys) else [need for need in needs if need.key not in known]
        for batch in _batches(fresh):
            flight = _Flight(batch)
            known |= dict.fromkeys(flight.keys, flight)
            if self._group is None:
                flight.land(ConversionError(review.failed(batch[0].document, STOPPING), CALL))
            else:
                self._spawn(self._group, self._convert(hook, flight))
        flights = [known[key] for key in keys]
        if self._group is None:
            for flight in set(flights):
                self._drop(flight)
        return flights

    def _drop(self, flight: "_Flight") -> None:
        known = self._flights
        for key in flight.keys:
            known.pop(key, None)

    async def _convert(self, hook: _Hook, flight: "_Flight") -> None:
        """Make one review of a flight and bring it down."""
        needs = flight.needs
        first = needs[0]
        began = perf_counter()
        error: ConversionError | None = None
        try:
            await self._spread(flight, await self._ask(hook, needs))
        except ConversionError as failure:
            error = failure
        except asyncio.CancelledError:
            error = ConversionError(review.failed(first.document, STOPPING), CALL)
            raise
        except Exception as failure:  # outermost: every waiter must get the error, whatever it is
            log.exception("an answer of the conversion webhook of %s could not be used", hook.name)
            error = ConversionError(review.failed(first.document, failure), INVALID_OBJECT)
        finally:
            self._drop(flight)
            flight.land(error)
        versions = (_version(first.document.get("apiVersion")), _version(first.api_version))
        failed = next(iter(flight.failures.values()), flight.error)
        self.metrics.observe(hook.name, versions, perf_counter() - began, failed.failure if failed is not None else "")

    async def _ask(self, hook: _Hook, needs: Sequence[NeedsConversion]) -> review.Answered:
        version = review.review_version(hook.settings.get("conversionReviewVersions") or ())
        uid = str(uuid.uuid4())
        body = review.request(version, uid, needs)
        try:
            raw = await self._poster.post(
                hook.target, body, limits.CONVERSION_TIMEOUT, owner=hook.owner, most=limits.REVIEW_ANSWER
            )
        except CallError as error:
            raise ConversionError(review.failed(needs[0].document, error), CALL) from error
        return await converted_objects(version, uid, needs, raw)

    async def _spread(self, flight: "_Flight", given: review.Answered) -> None:
        """Store the answer or the error of each need: an invalid object does not fail the others."""
        loop_budget = LoopBudget()
        for index in range(len(flight.needs)):
            await loop_budget.pause()
            self._take(flight, given, index, await object_of(given, index))

    def _take(self, flight: "_Flight", given: review.Answered, index: int, answer: Any) -> None:
        """Keep one answer as it is, or as far as it is acceptable."""
        needs, key = flight.needs, flight.keys[index]
        need = needs[index]
        try:
            made = need.take(answer)
            if made is None:
                made = need.keep(*review.accepted(need, given, answer, index if len(needs) > 1 else -1))
        except ConversionError as error:
            flight.failures[key] = error
        except (TypeError, RecursionError):
            flight.failures[key] = review.too_deep(need, index if len(needs) > 1 else -1)
        except ValueError as error:  # what the version's schema cannot take
            flight.failures[key] = ConversionError(str(error), INVALID_OBJECT)
        else:
            flight.kept[key] = made

    def _hook(self, resource: ServedResource) -> _Hook:
        """Return the webhook of the current configuration; a changed one starts without waiters and failures."""
        key, settings = (resource.group, resource.resource), resource.conversion or {}
        known = self._hooks.get(key)
        if known is None or (known.settings is not settings and known.settings != settings):
            self._generation += 1
            name = f"{resource.resource}.{resource.group}"
            self._hooks.pop(key, None)
            known = self._hooks[key] = _Hook(settings, name, f"conversion of {name} ({self._generation})")
            if len(self._hooks) > webhooks_limits.WEBHOOK_OWNERS:
                del self._hooks[next(iter(self._hooks))]
        return known


class _Flight:
    """One review in flight: its objects, the stored answers, and errors of all or of one object."""

    __slots__ = ("done", "error", "failures", "kept", "keys", "needs")

    def __init__(self, needs: Sequence[NeedsConversion]) -> None:
        self.needs = needs
        self.keys = [need.key for need in needs]
        self.kept: dict[Hashable, Converted | None] = {}
        self.failures: dict[Hashable, ConversionError] = {}
        self.error: ConversionError | None = None
        self.done = asyncio.get_running_loop().create_future()

    def land(self, error: ConversionError | None) -> None:
        """Wake all waiters."""
        self.error = error
        self.done.set_result(None)

    def check(self, need: NeedsConversion) -> None:
        """Raise what went wrong about an object, if that is known by now."""
        error = self.failures.get(need.key) or self.error
        if error is not None:
            error.need = need
            raise error


async def _apart(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the work on so many bytes returns: here when they are few, else out of a thread."""
    if size < server_limits.WORK_INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def converted_objects(version: str, uid: str, needs: Sequence[NeedsConversion], raw: bytes) -> review.Answered:
    """Return the converted objects of an answer, unchecked, and yield to the event loop meanwhile.

    Raises ConversionError.
    """
    parts = review.split(raw, len(needs))
    if parts is not None:
        found = await _apart(len(parts[0]), review.listed_objects, version, uid, needs, raw, parts)
        if found is not None:
            return found
    return await _apart(len(raw), review.all_objects, version, uid, needs, raw)


async def object_of(given: review.Answered, index: int) -> Any:
    """Return one object of an answer, with its text for errors; raise ConversionError.

    If a text is not JSON, the whole answer is decoded for its error.
    """
    try:
        answer = await _apart(given.bytes_of(index), given.__getitem__, index)
    except orjson.JSONDecodeError:
        await _apart(given.size, given.decode)
        answer = given[index]
    if isinstance(answer, dict) and not review.is_typed(answer):
        await _apart(given.size, given.tell_apart)
    return answer


def _filled(part: Sequence[Made | NeedsConversion], answers: Sequence[Converted | None]) -> Sequence[Made]:
    """Return the views, with an answer for each need: an answer that a viewer needs is always stored."""
    if len(answers) == len(part):
        return cast(Sequence[Made], answers)
    following = iter(cast(Sequence[Made], answers))
    return [next(following) if isinstance(one, NeedsConversion) else one for one in part]


def _batches(needs: Sequence[NeedsConversion]) -> Iterator[Sequence[NeedsConversion]]:
    """Yield needs in reviews: of one asker, at most limits.REVIEW_OBJECTS and about limits.REVIEW_BYTES."""
    begin = 0
    while begin < len(needs):
        alike = next(groupby(needs[begin : begin + limits.REVIEW_OBJECTS], _ASKER))[1]
        batch = [*alike]
        ends = [*accumulate(map(len, map(_TEXT, batch)))]
        if ends[-1] > limits.REVIEW_BYTES:
            batch = batch[: max(1, bisect_right(ends, limits.REVIEW_BYTES))]
        yield batch
        begin += len(batch)


def _version(api_version: Any) -> str:
    return str(api_version or "").rpartition("/")[2]
