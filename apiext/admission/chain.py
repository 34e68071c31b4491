"""The admission plug-ins in their order: mutating first, validating just before the write (ADM-001)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from apiext.admission.attributes import Attributes
from apiext.documents.document import Document


class Plugin(Protocol):
    """A plug-in is a value with both moments; what it does not do returns at once."""

    async def mutate(self, attributes: Attributes, new: Document) -> Document:
        """Return the object to go on with; raises StatusError to deny."""

    async def review(self, attributes: Attributes) -> None:
        """Judge the final object; raises StatusError to deny."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Plug-ins in the order in which they see a write."""

    plugins: Sequence[Plugin] = ()

    async def mutate(self, attributes: Attributes, new: Document) -> Document:
        """Run the mutating moment of each plug-in on the result of the one before."""
        for plugin in self.plugins:
            new = await plugin.mutate(attributes, new)
        return new

    async def review(self, attributes: Attributes) -> None:
        """Run the validating moment of each plug-in."""
        for plugin in self.plugins:
            await plugin.review(attributes)
