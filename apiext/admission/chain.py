"""The chain of admission plug-ins: the mutating phase, then the validating phase (ADM-001).

The validating phase runs just before the write.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from apiext.admission.attributes import Attributes
from apiext.admission.metrics import Metrics
from apiext.catalog import limits as catalog_limits
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.telemetry import Distribution

D = TypeVar("D", Document, None)


class Plugin(Protocol):
    """A plug-in: a Mutator, a Validator, or both."""

    @property
    def name(self) -> str:
        """The name in flags and metrics."""

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether the plug-in, as now configured, applies to this operation and resource."""


@runtime_checkable
class Configurable(Plugin, Protocol):
    """A plug-in whose metrics observe only the writes to which it applies.

    These are the plug-ins of webhooks, policies, quotas and built-in kinds.
    """

    def follow(self, changed: Callable[[], None]) -> None:
        """Make the plug-in call ``changed`` whenever ``applies`` may return a different result."""


@runtime_checkable
class Mutator(Plugin, Protocol):
    """A plug-in of the mutating phase."""

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Return the mutated object, None for a deletion; raises StatusError to deny."""


@runtime_checkable
class Validator(Plugin, Protocol):
    """A plug-in of the validating phase."""

    async def review(self, attributes: Attributes) -> None:
        """Validate the final object; raises StatusError to deny."""


P = TypeVar("P", bound=Plugin)


class Phase(NamedTuple, Generic[P]):
    """The plug-ins that apply to an operation on a resource, in order, in one phase.

    The phase is mutating or validating. ``passed`` has the distributions of the plug-ins that do not apply and are not
    Configurable. If no plug-in applies, ``passed`` also has the distribution of the phase. Each write adds a zero
    duration to these distributions.
    """

    plugins: tuple[P, ...]
    passed: tuple[Distribution, ...]


class Chain:
    """The plug-ins of a server, in the order in which they run."""

    __slots__ = ("_mutating_phases", "_mutators", "_validating_phases", "_validators", "metrics", "plugins")

    def __init__(self, plugins: Sequence[Plugin] = (), metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        self.plugins = tuple(plugins)
        self._mutators = tuple(plugin for plugin in plugins if isinstance(plugin, Mutator))
        self._validators = tuple(plugin for plugin in plugins if isinstance(plugin, Validator))
        self._mutating_phases: dict[tuple[str, GroupResource], Phase[Mutator]] = {}
        self._validating_phases: dict[tuple[str, GroupResource], Phase[Validator]] = {}
        for plugin in plugins:
            if isinstance(plugin, Configurable):
                plugin.follow(self._clear)

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether any plug-in applies to a write with this operation and resource."""
        return bool(
            self._mutating_phase(operation, resource).plugins or self._validating_phase(operation, resource).plugins
        )

    async def mutate(self, attributes: Attributes, new: D) -> D:
        """Run the mutating plug-ins in order, each on the previous result.

        Run a second round if needed.
        """
        phase = self._mutating_phase(attributes.operation, attributes.resource)
        _observe(phase)
        if not phase.plugins:
            return new
        clock = _Clock(self.metrics, "admit", attributes.operation)
        result: Document | None = new
        try:
            while True:
                for plugin in phase.plugins:
                    clock.name = plugin.name
                    result = await plugin.mutate(attributes, result)
                    clock.leave()
                if attributes.rounds is None or not attributes.rounds.next():
                    break
                _observe(phase)
        finally:
            clock.stop()
        return cast(D, result)  # a plug-in returns None only if its argument is None

    async def review(self, attributes: Attributes) -> None:
        """Run the validating phase: call each validating plug-in that applies."""
        phase = self._validating_phase(attributes.operation, attributes.resource)
        _observe(phase)
        if not phase.plugins:
            return
        clock = _Clock(self.metrics, "validate", attributes.operation)
        try:
            for plugin in phase.plugins:
                clock.name = plugin.name
                await plugin.review(attributes)
                clock.leave()
        finally:
            clock.stop()

    async def review_delete(self, attributes: Attributes) -> None:
        """Run both phases for a deletion; no plug-in can change the object (ADM-014)."""
        await self.mutate(attributes, None)
        await self.review(attributes)

    def _mutating_phase(self, operation: str, resource: GroupResource) -> Phase[Mutator]:
        phase = self._mutating_phases.get((operation, resource))
        return phase or self._compile(self._mutating_phases, self._mutators, "admit", operation, resource)

    def _validating_phase(self, operation: str, resource: GroupResource) -> Phase[Validator]:
        phase = self._validating_phases.get((operation, resource))
        return phase or self._compile(self._validating_phases, self._validators, "validate", operation, resource)

    def _compile(
        self,
        compiled: dict[tuple[str, GroupResource], Phase[P]],
        plugins: Sequence[P],
        type: str,
        operation: str,
        resource: GroupResource,
    ) -> Phase[P]:
        applying = tuple(plugin for plugin in plugins if plugin.applies(operation, resource))
        not_applying = [plugin for plugin in plugins if plugin not in applying and not isinstance(plugin, Configurable)]
        passed = self.metrics.passed([plugin.name for plugin in not_applying], type, operation, whole=not applying)
        if len(compiled) >= catalog_limits.NAMES_SEEN:
            compiled.clear()
        phase = compiled[operation, resource] = Phase(applying, tuple(passed))
        return phase

    def _clear(self) -> None:
        self._mutating_phases.clear()
        self._validating_phases.clear()


def _observe(phase: Phase[Any]) -> None:
    for observed in phase.passed:
        observed.buckets[0] += 1  # has the effect of observe(0), without the cost of a call


class _Clock:
    """Measures one phase of a write, and each plug-in in this phase.

    ``name`` is the running plug-in; its time begins when the previous plug-in ends. If ``stop`` is called before
    ``leave``, the plug-in has raised an error, and its duration is counted as rejected.
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
