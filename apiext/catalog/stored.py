"""Storage of the objects of a definition: versions, storage version and errors.

The errors are those for unreadable objects.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from apiext.catalog.splices import Splices
from apiext.documents.document import Document, View

Text = Callable[[bytes], tuple[bytes, int]]
"""Stored bytes → (JSON in the stored version without a resourceVersion, offset for the resourceVersion).

The offset is -1 if it is unknown.
"""


class Shape(Protocol):
    """The part of a version's schema that codecs use (apiext.schema.compile.CompiledSchema)."""

    def from_storage(self, document: Document) -> bool:
        """Prune and default a stored object in place, and drop its nulls.

        Return False only if the object has certainly not changed.
        """

    def prune(self, document: Document) -> list[str]:
        """Drop unknown fields in place; return their paths."""

    def drop_nulls(self, document: Document) -> object:
        """Drop nulls in place, except where the schema has ``nullable``."""

    def default(self, document: Document) -> bool:
        """Set defaults in place; report whether the document changed."""

    @property
    def is_normal(self) -> Callable[[Any], bool]:
        """Fast path: the function that reports whether an object is already normal.

        True means: pruning, dropping nulls and coercing would change nothing, and the object has no floats.
        """

    def coerce_embedded(self, document: Document, *, drop_invalid: bool = False) -> object:
        """Coerce the metadata of embedded resources in place."""


class Unreadable(ValueError):
    """A stored object that cannot be read in any version; a get returns a 500.

    ``named`` is the message with the name of the object.
    """

    def __init__(self, text: str, stored: View) -> None:
        super().__init__(text)
        self.stored = stored
        metadata = stored.get("metadata")
        names = metadata if isinstance(metadata, dict) else {}
        name = "/".join(str(names[part]) for part in ("namespace", "name") if part in names)
        self.named = f"unable to read {name or 'an object without a name'}: {text}"


class WrongVersion(Unreadable):
    """A stored object has a version that its definition does not have (VER-011).

    A get returns a 500.
    """


class Storage(Struct, frozen=True):
    """The stored versions of a definition.

    ``shapes`` is version → schema. ``written`` is the storage version. ``webhook`` is true if a webhook converts
    objects. The codec of each version adds its entry to ``texts`` and ``splices``. ``texts`` is version → the function
    that returns a stored object as the webhook receives it. ``splices`` is version → the cached offsets for the
    resourceVersion in stored JSON.
    """

    group: str
    shapes: Mapping[str, Callable[[], Shape]]
    written: str
    webhook: bool
    texts: dict[str, Text] = field(default_factory=dict)
    splices: dict[str, Splices] = field(default_factory=dict)

    def version_of(self, document: View) -> str:
        """Return the version of a stored object.

        Raises WrongVersion if the definition does not have it.
        """
        api_version = document.get("apiVersion")
        group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
        if group != self.group or version not in self.shapes:
            text = api_version if isinstance(api_version, str) else ""
            raise WrongVersion(f"request to convert CR from an invalid group/version: {text}", document)
        return version

    def check(self, document: View) -> None:
        """Raise WrongVersion if the definition has no storage version.

        A definition that was written directly to etcd may lack it.
        """
        if not self.written:
            raise WrongVersion("error resolving resource: its definition has no version to store", document)
