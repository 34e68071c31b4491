"""Plug-ins that are imported only after a webhook or policy is configured (decision 36)."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from apiext.admission.attributes import Attributes
from apiext.admission.chain import Mutator, Plugin, Validator
from apiext.admission.configured import Live
from apiext.documents.document import Document
from apiext.meta.names import GroupResource

P = TypeVar("P", bound=Plugin)


class _OnDemand(Generic[P]):
    """A plug-in whose modules are imported at the first write to which it applies.

    This write waits for the import.
    """

    def __init__(self, name: str, live: Live[object], load: Callable[[], Callable[[], P]]) -> None:
        """Store ``load``; it imports the modules and returns the function that creates the plug-in.

        The first write after a webhook or policy is configured calls ``load`` in a thread.
        """
        self.name = name
        self._live = live
        self._load = load
        self._plugin: P | None = None

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether a webhook or policy may be configured; false means that none is configured."""
        return not self._live.empty

    def follow(self, changed: Callable[[], None]) -> None:
        """Make the plug-in call ``changed`` whenever the result of ``applies`` changes."""
        self._live.follow(changed)

    async def plugin(self) -> P | None:
        """Return the plug-in, created once on the event loop.

        Return None until a webhook or policy is configured.
        """
        if self._plugin is None and await self._live.configured():
            create = await asyncio.to_thread(self._load)
            self._plugin = self._plugin or create()
        return self._plugin


class OnDemandMutator(_OnDemand[Mutator]):
    """A plug-in of the mutating phase that is imported at its first use."""

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        """Return the mutated object, None for a deletion; raises StatusError to deny."""
        plugin = await self.plugin()
        return new if plugin is None else await plugin.mutate(attributes, new)


class OnDemandValidator(_OnDemand[Validator]):
    """A plug-in of the validating phase that is imported at its first use."""

    async def review(self, attributes: Attributes) -> None:
        """Validate the final object; raises StatusError to deny."""
        plugin = await self.plugin()
        if plugin is not None:
            await plugin.review(attributes)
