"""What an admission plug-in sees of a write."""

from dataclasses import dataclass

from apiext.auth.user import User
from apiext.documents.document import View
from apiext.meta.names import GroupKind, GroupResource


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
    user: User
    dry_run: bool
    new: View | None = None
    old: View | None = None
