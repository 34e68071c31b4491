"""How the objects of a definition are stored, and what stored objects no version shows."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from apiext.catalog.splices import Splices
from apiext.documents.document import Document, View

Text = Callable[[bytes], tuple[bytes, int]]
"""Stored bytes → what their own version shows without a resourceVersion, and where that goes (-1: not known)."""


class Shape(Protocol):
    """What viewing asks of a version's schema (apiext.schema.compile.CompiledSchema)."""

    def from_storage(self, document: Document) -> bool:
        """Prune and default a stored object in place."""

    def prune(self, document: Document) -> list[str]:
        """Drop unknown fields in place."""

    def drop_nulls(self, document: Document) -> object:
        """Drop null members that nothing allows."""

    def default(self, document: Document) -> bool:
        """Fill in defaults in place; return whether any were missing."""

    @property
    def is_normal(self) -> Callable[[Any], bool]:
        """Tells that pruning, dropping nulls and coercing plainly change nothing, and that it holds no float."""

    def coerce_embedded(self, document: Document, *, drop_invalid: bool = False) -> object:
        """Bring embedded resources into shape."""


class Unreadable(ValueError):
    """A stored object that no version shows: a 500 for who asks. ``named`` says which one it is, too."""

    def __init__(self, text: str, stored: View) -> None:
        super().__init__(text)
        self.stored = stored
        metadata = stored.get("metadata")
        names = metadata if isinstance(metadata, dict) else {}
        name = "/".join(str(names[part]) for part in ("namespace", "name") if part in names)
        self.named = f"unable to read {name or 'an object without a name'}: {text}"


class WrongVersion(Unreadable):
    """A stored object claims a version that its definition does not have (VER-011): a 500 for who asks."""


class Storage(Struct, frozen=True):
    """How the objects of a definition are stored: versions by name, which one is written, who converts.

    ``texts`` make stored bytes of a version what that version shows, but for the resourceVersion, which no webhook is
    told; ``splices`` are those of a version; each codec adds its own.
    """

    group: str
    shapes: Mapping[str, Callable[[], Shape]]
    written: str
    webhook: bool
    texts: dict[str, Text] = field(default_factory=dict)
    splices: dict[str, Splices] = field(default_factory=dict)

    def version_of(self, document: View) -> str:
        """Return the version that a stored object is in; raises WrongVersion when the definition has none such."""
        api_version = document.get("apiVersion")
        group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
        if group != self.group or version not in self.shapes:
            told = api_version if isinstance(api_version, str) else ""
            raise WrongVersion(f"request to convert CR from an invalid group/version: {told}", document)
        return version

    def check(self, document: View) -> None:
        """Raise WrongVersion for an object that is to be written where no version is: others made the definition so."""
        if not self.written:
            raise WrongVersion("error resolving resource: its definition has no version to store", document)
