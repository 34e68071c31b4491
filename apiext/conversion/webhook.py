"""Calls of conversion webhooks.

Requests that need the same object share a call (VER-004…012). A NeedsConversion (catalog/converted.py), in short a
need, is an object that a read or write needs in another version. A review is the request of one call; it contains
several objects.
"""

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
from apiext.catalog.converted import Converted, Lookup, NeedsConversion, no_lookup
from apiext.catalog.served import ServedResource
from apiext.conversion import limits, review
from apiext.conversion.metrics import Metrics
from apiext.conversion.review import CALL, INVALID_OBJECT, ConversionError
from apiext.documents.document import View
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.store import EncodedView, Entry, Viewer, ViewSource, stored, with_views
from apiext.webhooks import limits as webhooks_limits
from apiext.webhooks.errors import CallError
from apiext.webhooks.target import Target, target_of

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
STOPPING = "the server is stopping"
_BATCH_KEY, _TEXT = attrgetter("batch_key"), attrgetter("text")
_NEEDS_AT_ONCE = limits.REVIEW_OBJECTS * limits.REVIEWS_AT_ONCE
_BYTES_AT_ONCE = limits.REVIEW_BYTES * limits.REVIEWS_AT_ONCE


class Poster(Protocol):
    """The interface of the HTTP client for webhooks (apiext.webhooks.client.Client)."""

    async def post(self, target: Target, body: bytes, timeout: float, *, owner: str, max_bytes: int) -> bytes:
        """POST JSON, and return the body of the response; raise CallError."""


class _Hook(Struct):
    """The configured webhook of a definition.

    ``waiting`` is the number of requests that wait for the webhook. ``owner`` is the key of its circuit breaker in the
    HTTP client. ``place`` is the target, None before its first use.
    """

    settings: View
    name: str
    owner: str
    waiting: int = 0
    place: Target | None = None

    @property
    def target(self) -> Target:
        """The target of the webhook; raises BadTarget for invalid settings."""
        if self.place is None:
            found = target_of(self.settings.get("clientConfig") or {})
            # as upstream, which ignores a blank CA bundle
            self.place = found if found.ca.strip() else replace(found, ca=b"")
        return self.place


class Converter:
    """Converts objects with the webhooks of their definitions. A server has one instance.

    Each NeedsConversion caches its converted object (see ``catalog.converted``). If a request is cancelled, the call
    for it continues, since other requests may wait for the call.
    """

    def __init__(self, poster: Poster) -> None:
        self.metrics = Metrics()
        self._poster = poster
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[Hashable, _Call] = {}
        self._hooks: dict[tuple[str, str], _Hook] = {}
        self._generation = 0

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to run calls as tasks of this group."""
        self._group = group

    async def stop(self) -> None:
        """Cancel the running calls. Requests that wait for them get ConversionError."""
        self._group = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in set(self._calls.values()):  # the remaining calls are those whose task has not begun
            call.finish(ConversionError(review.failure_text(call.needs[0].document, STOPPING), CALL))
        self._calls.clear()

    async def made(
        self, resource: ServedResource, viewer: Viewer, entries: Sequence[Entry], *, request: bool = True
    ) -> list[ViewSource]:
        """Return the views of entries: JSON in one version, made by ``viewer`` from stored bytes.

        Call the webhook for objects whose conversion is not cached.

        ``request`` is true if a request of a client waits for the result; limits.CONVERSIONS_WAITING limits only these
        requests. Raises ConversionError and the errors of the viewer.
        """
        found: list[ViewSource] = []
        part: list[ViewSource | NeedsConversion] = []
        needs: list[NeedsConversion] = []
        start, size, loop_budget = 0, 0, LoopBudget()
        lookup: Lookup = no_lookup  # the first NeedsConversion replaces it by a lookup of cached conversions
        while start < len(entries):
            await loop_budget.pause()
            some = entries[start : start + min(limits.LOOKUPS_PER_CHECK, _NEEDS_AT_ONCE - len(needs))]
            start += len(some)
            raws = stored(some)
            for entry, answer in zip(some, lookup(raws), strict=True):
                if answer is not None:
                    part.append(answer)
                    continue
                try:
                    part.append(EncodedView(entry.uncached_view(viewer), entry.revision))
                except NeedsConversion as need:
                    part.append(need.with_traceback(None))  # a traceback would keep the stack frames alive
                    lookup = need.lookup
            needs += [one for one in part[-len(some) :] if isinstance(one, NeedsConversion)]
            size += sum(map(len, raws)) if needs else 0
            if len(needs) == _NEEDS_AT_ONCE or size >= _BYTES_AT_ONCE:
                found += _filled(part, await self.convert(resource, needs, request=request))
                part, needs, size = [], [], 0
        found += _filled(part, await self.convert(resource, needs, request=request))
        return found

    def prepare(
        self,
        resource: ServedResource,
        viewer: Viewer,
        entries: Sequence[Entry],
        then: Callable[[Sequence[Entry] | Exception], None],
    ) -> None:
        """Convert entries in a new task, which calls ``then`` with converted entries or the error.

        The converted entries have the same order. After ``stop``, do nothing.
        """

        async def work() -> None:
            try:
                made = await self.made(resource, viewer, entries, request=False)
                found: Sequence[Entry] | Exception = with_views(entries, viewer, made)
            except Exception as error:  # ``then`` handles the error
                found = error
            try:
                then(found)
            except Exception:  # the error of one watch must not end the task group
                log.exception("converted objects could not be delivered to a watch")

        if self._group is not None:
            self._spawn(self._group, work())

    def _spawn(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        task = group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def convert(
        self, resource: ServedResource, needs: Sequence[NeedsConversion], *, request: bool = True
    ) -> list[Converted | None]:
        """Convert all objects, and return the converted objects in the same order.

        Raise ConversionError.
        """
        if not needs:
            return []
        hook = self._hook(resource)
        if request and hook.waiting >= limits.CONVERSIONS_WAITING:
            text = f"{hook.waiting} requests are waiting for its responses already"
            raise ConversionError(review.failure_text(needs[0].document, text), CALL)
        keys = [need.key for need in needs]
        calls = self._calls_for(hook, needs, keys)
        pending = set(calls)
        kept: dict[Hashable, Converted | None] = {}
        hook.waiting += request
        try:
            while pending:
                await asyncio.wait([call.done for call in pending], return_when=asyncio.FIRST_COMPLETED)
                finished = [call for call in pending if call.done.done()]
                if any(call.error or call.failures for call in finished):
                    for need, call in zip(needs, calls, strict=True):
                        call.check(need)
                for call in finished:
                    kept |= call.kept
                pending.difference_update(finished)
        finally:
            hook.waiting -= request
        return [kept[key] for key in keys]

    def _calls_for(self, hook: _Hook, needs: Sequence[NeedsConversion], keys: Sequence[Hashable]) -> "list[_Call]":
        """Return the call for each object. Start calls for objects that no running call contains."""
        known = self._calls
        fresh = needs if known.keys().isdisjoint(keys) else [need for need in needs if need.key not in known]
        for batch in _batches(fresh):
            call = _Call(batch)
            known |= dict.fromkeys(call.keys, call)
            if self._group is None:
                call.finish(ConversionError(review.failure_text(batch[0].document, STOPPING), CALL))
            else:
                self._spawn(self._group, self._convert(hook, call))
        calls = [known[key] for key in keys]
        if self._group is None:
            for call in set(calls):
                self._drop(call)
        return calls

    def _drop(self, call: "_Call") -> None:
        known = self._calls
        for key in call.keys:
            known.pop(key, None)

    async def _convert(self, hook: _Hook, call: "_Call") -> None:
        """Send a review, cache the converted objects, and wake the requests that wait for the call."""
        needs = call.needs
        first = needs[0]
        began = perf_counter()
        error: ConversionError | None = None
        try:
            await self._keep_all(call, await self._post(hook, needs))
        except ConversionError as failure:
            error = failure
        except asyncio.CancelledError:
            error = ConversionError(review.failure_text(first.document, STOPPING), CALL)
            raise
        except Exception as failure:  # every waiting request must get an error
            log.exception("a response of the conversion webhook of %s could not be used", hook.name)
            error = ConversionError(review.failure_text(first.document, failure), INVALID_OBJECT)
        finally:
            self._drop(call)
            call.finish(error)
        versions = (_version(first.document.get("apiVersion")), _version(first.api_version))
        failed = next(iter(call.failures.values()), call.error)
        self.metrics.observe(hook.name, versions, perf_counter() - began, failed.failure if failed is not None else "")

    async def _post(self, hook: _Hook, needs: Sequence[NeedsConversion]) -> review.ConvertedObjects:
        version = review.review_version(hook.settings.get("conversionReviewVersions") or ())
        uid = str(uuid.uuid4())
        body = review.request(version, uid, needs)
        try:
            raw = await self._poster.post(
                hook.target, body, limits.CONVERSION_TIMEOUT, owner=hook.owner, max_bytes=limits.REVIEW_ANSWER
            )
        except CallError as error:
            raise ConversionError(review.failure_text(needs[0].document, error), CALL) from error
        return await converted_objects(version, uid, needs, raw)

    async def _keep_all(self, call: "_Call", given: review.ConvertedObjects) -> None:
        """Cache the conversion of each object, or its error.

        An invalid object does not affect other objects.
        """
        loop_budget = LoopBudget()
        for index in range(len(call.needs)):
            await loop_budget.pause()
            self._keep_one(call, given, index, await object_of(given, index))

    def _keep_one(self, call: "_Call", given: review.ConvertedObjects, index: int, answer: Any) -> None:
        """Cache the conversion of an object, or its error."""
        needs, key = call.needs, call.keys[index]
        need = needs[index]
        try:
            made = need.keep_plain(answer)
            if made is None:
                made = need.keep(*review.accepted(need, given, answer, index if len(needs) > 1 else -1))
        except ConversionError as error:
            call.failures[key] = error
        except (TypeError, RecursionError):
            call.failures[key] = review.nesting_error(need, index if len(needs) > 1 else -1)
        except ValueError as error:  # the schema of the version does not accept the object
            call.failures[key] = ConversionError(str(error), INVALID_OBJECT)
        else:
            call.kept[key] = made

    def _hook(self, resource: ServedResource) -> _Hook:
        """Return the webhook with its current configuration.

        A changed configuration is a new webhook: ``waiting`` is 0, and ``owner`` is new, so its circuit breaker is new.
        """
        key, settings = (resource.group, resource.resource), resource.definition.conversion or {}
        known = self._hooks.get(key)
        if known is None or (known.settings is not settings and known.settings != settings):
            self._generation += 1
            name = f"{resource.resource}.{resource.group}"
            self._hooks.pop(key, None)
            known = self._hooks[key] = _Hook(settings, name, f"conversion of {name} ({self._generation})")
            if len(self._hooks) > webhooks_limits.WEBHOOK_OWNERS:
                del self._hooks[next(iter(self._hooks))]
        return known


class _Call:
    """A running review: its objects (``needs``) and cached conversions (``kept``: key → value).

    ``failures`` is key → error of one object. ``error`` is the error of the complete call.
    """

    __slots__ = ("done", "error", "failures", "kept", "keys", "needs")

    def __init__(self, needs: Sequence[NeedsConversion]) -> None:
        self.needs = needs
        self.keys = [need.key for need in needs]
        self.kept: dict[Hashable, Converted | None] = {}
        self.failures: dict[Hashable, ConversionError] = {}
        self.error: ConversionError | None = None
        self.done = asyncio.get_running_loop().create_future()

    def finish(self, error: ConversionError | None) -> None:
        """Wake all waiting requests."""
        self.error = error
        self.done.set_result(None)

    def check(self, need: NeedsConversion) -> None:
        """Raise the error of an object, if its conversion has failed."""
        error = self.failures.get(need.key) or self.error
        if error is not None:
            error.need = need
            raise error


async def _offload(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``work`` and return its result.

    From server_limits.WORK_INLINE bytes on, call it in a thread.
    """
    if size < server_limits.WORK_INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def converted_objects(
    version: str, uid: str, needs: Sequence[NeedsConversion], raw: bytes
) -> review.ConvertedObjects:
    """Return the objects of a response, without validation of the objects.

    Raise ConversionError. A thread decodes a large response.
    """
    parts = review.split(raw, len(needs))
    if parts is not None:
        found = await _offload(len(parts[0]), review.listed_objects, version, uid, needs, raw, parts)
        if found is not None:
            return found
    return await _offload(len(raw), review.all_objects, version, uid, needs, raw)


async def object_of(given: review.ConvertedObjects, index: int) -> Any:
    """Return an object of a response; raise ConversionError.

    If the object is invalid JSON, the complete response is decoded for the error message.
    """
    try:
        answer = await _offload(given.bytes_of(index), given.__getitem__, index)
    except orjson.JSONDecodeError:
        await _offload(given.size, given.decode)
        answer = given[index]
    if isinstance(answer, dict) and not review.is_typed(answer):
        await _offload(given.size, given.find_texts)
    return answer


def _filled(part: Sequence[ViewSource | NeedsConversion], answers: Sequence[Converted | None]) -> Sequence[ViewSource]:
    """Return the views, with each NeedsConversion replaced by its converted object, in order."""
    if len(answers) == len(part):
        return cast(Sequence[ViewSource], answers)
    following = iter(cast(Sequence[ViewSource], answers))
    return [next(following) if isinstance(one, NeedsConversion) else one for one in part]


def _batches(needs: Sequence[NeedsConversion]) -> Iterator[Sequence[NeedsConversion]]:
    """Split objects into reviews. All objects of a review have the same ``batch_key``.

    A review has at most limits.REVIEW_OBJECTS objects. It has at most limits.REVIEW_BYTES bytes, unless it has only one
    object.
    """
    begin = 0
    while begin < len(needs):
        alike = next(groupby(needs[begin : begin + limits.REVIEW_OBJECTS], _BATCH_KEY))[1]
        batch = [*alike]
        ends = [*accumulate(map(len, map(_TEXT, batch)))]
        if ends[-1] > limits.REVIEW_BYTES:
            batch = batch[: max(1, bisect_right(ends, limits.REVIEW_BYTES))]
        yield batch
        begin += len(batch)


def _version(api_version: Any) -> str:
    return str(api_version or "").rpartition("/")[2]
