"""The admission plug-ins in their order: mutating first, validating just before the write (ADM-001)."""

from collections.abc import Coroutine, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, cast, runtime_checkable

from apiext.admission.attributes import Attributes
from apiext.admission.metrics import Metrics
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.telemetry import Distribution


class Plugin(Protocol):
    """What mutates, judges, or both."""

    @property
    def name(self) -> str:
        """What flags and metrics call it."""

    @property
    def idle(self) -> bool:
        """Whether nothing is configured that it could do."""


@runtime_checkable
class Choosy(Plugin, Protocol):
    """A plug-in that looks at some writes only."""

    def spares(self, operation: str, resource: GroupResource) -> bool:
        """Tell whether it has nothing to do with a write in either moment."""


@runtime_checkable
class Opener(Choosy, Protocol):
    """A plug-in that looks at creates, but knows mostly at once that it allows one."""

    def opens(self, resource: GroupResource, namespace: str | None) -> Mapping[str, int] | None:
        """Return the premises (Traces) of a create that it leaves as it is, None where it cannot tell at once."""


@runtime_checkable
class Mutator(Plugin, Protocol):
    """A plug-in of the mutating moment."""

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Return the object to go on with, None on delete; raises StatusError to deny."""


@runtime_checkable
class Judge(Plugin, Protocol):
    """A plug-in of the validating moment."""

    async def review(self, attributes: Attributes) -> None:
        """Judge the final object; raises StatusError to deny."""


class Chain:
    """Plug-ins in the order in which they see a write."""

    __slots__ = ("_all", "_judges", "_mutators", "_openers", "_others", "_parts", "_still", "metrics")

    def __init__(self, plugins: Sequence[Plugin] = (), metrics: Metrics | None = None) -> None:
        self._mutators = tuple(plugin for plugin in plugins if isinstance(plugin, Mutator))
        self._judges = tuple(plugin for plugin in plugins if isinstance(plugin, Judge))
        self.metrics = metrics or Metrics()
        self._parts = {"admit": _parted(self._mutators), "validate": _parted(self._judges)}
        self._all = _parted(plugins)
        self._openers = tuple(plugin for plugin in plugins if isinstance(plugin, Opener))
        self._others = _parted([plugin for plugin in plugins if not isinstance(plugin, Opener)])
        self._still: dict[tuple[str, str], list[Distribution]] = {}

    def still(self, moment: str, operation: str, resource: GroupResource) -> bool:
        """Tell whether no plug-in has anything to do in a moment (admit or validate): then it is over, and counted.

        Most writes are like that, and two coroutines and their clocks are a twentieth of one.
        """
        if not _spare(self._parts[moment], operation, resource):
            return False
        self.passed(moment, operation)
        return True

    def spares(self, operation: str, resource: GroupResource) -> bool:
        """Tell whether no plug-in has anything to do with a write in either moment; nothing is counted yet."""
        return _spare(self._all, operation, resource)

    def opens(self, resource: GroupResource, namespace: str | None) -> Mapping[str, int] | None:
        """Return the premises of a create that no plug-in has anything to say about, None where one may have."""
        if not _spare(self._others, "CREATE", resource):
            return None
        premises: dict[str, int] = {}
        for plugin in self._openers:
            found = plugin.opens(resource, namespace)
            if found is None:
                return None
            premises.update(found)
        return premises

    def passed(self, moment: str, operation: str) -> None:
        """Count a moment in which no plug-in had anything to do."""
        key = moment, operation
        if key not in self._still:
            self._still[key] = self.metrics.passed([plugin.name for plugin in self._parts[moment][0]], *key)
        for observed in self._still[key]:
            observed.buckets[0] += 1  # no time: what observing 0 does, without a call for each

    def mutate(self, attributes: Attributes, new: Document) -> Coroutine[Any, Any, Document]:
        """Run the mutating moment of each plug-in on the result of the one before, twice if one asks for it."""
        return cast(Coroutine[Any, Any, Document], self._mutate(attributes, new))  # what was given is never taken away

    async def review(self, attributes: Attributes) -> None:
        """Run the validating moment of each plug-in."""
        clock = _Clock(self.metrics, "validate", attributes.operation)
        try:
            for plugin in self._judges:
                if not plugin.idle:
                    clock.name = plugin.name
                    await plugin.review(attributes)
                    clock.leave()
        finally:
            clock.stop()

    async def review_delete(self, attributes: Attributes) -> None:
        """Run both moments on an object about to be deleted, which nobody can change (ADM-014)."""
        write = attributes.operation, attributes.resource
        if not self.still("admit", *write):
            await self._mutate(attributes, None)
        if not self.still("validate", *write):
            await self.review(attributes)

    async def _mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        clock = _Clock(self.metrics, "admit", attributes.operation)
        try:
            while True:
                for plugin in self._mutators:
                    if not plugin.idle:
                        clock.name = plugin.name
                        new = await plugin.mutate(attributes, new)
                        clock.leave()
                if attributes.rounds is None or not attributes.rounds.next():
                    break
        finally:
            clock.stop()
        return new


def _spare(parts: tuple[list[Choosy], list[Plugin]], operation: str, resource: GroupResource) -> bool:
    choosy, others = parts
    for plugin in others:
        if not plugin.idle:
            return False
    for plugin in choosy:  # noqa: SIM110 (any would be one more frame for each)
        if not plugin.spares(operation, resource):
            return False
    return True


def _parted(plugins: Sequence[Plugin]) -> tuple[list[Choosy], list[Plugin]]:
    choosy = [plugin for plugin in plugins if isinstance(plugin, Choosy)]
    return choosy, [plugin for plugin in plugins if not isinstance(plugin, Choosy)]


class _Clock:
    """Observes one moment of a write, and each plug-in in it; what is not left was left by an error.

    ``name`` is the plug-in at work, which begins when the one before ends.
    """

    __slots__ = ("_began", "_entered", "_metrics", "_operation", "_type", "name")

    def __init__(self, metrics: Metrics, type: str, operation: str) -> None:
        self._metrics = metrics
        self._type = type
        self._operation = operation
        self.name = ""
        self._began = self._entered = perf_counter()

    def leave(self, *, rejected: bool = False) -> None:
        now = perf_counter()
        self._metrics.plugin(self.name, self._type, self._operation, rejected, now - self._entered)
        self._entered = now
        self.name = ""

    def stop(self) -> None:
        rejected = bool(self.name)
        if rejected:
            self.leave(rejected=True)
        self._metrics.step(self._type, self._operation, rejected, perf_counter() - self._began)
