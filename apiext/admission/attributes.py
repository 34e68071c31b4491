"""What an admission plug-in sees of a write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from apiext.documents.document import View
from apiext.meta.names import GroupKind, GroupResource


class Requester(Protocol):
    """Who asks; a plug-in needs no more of a user."""

    @property
    def name(self) -> str:
        """The user name."""

    @property
    def groups(self) -> Sequence[str]:
        """The names of the user's groups."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """One write: operation CREATE, UPDATE or DELETE on an object; ``old`` is None on create, ``new`` on delete."""

    operation: str
    resource: GroupResource
    version: str
    kind: GroupKind
    subresource: str
    namespace: str | None
    name: str
    user: Requester
    dry_run: bool
    new: View | None = None
    old: View | None = None
