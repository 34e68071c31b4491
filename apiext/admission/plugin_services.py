"""Services that admission plug-ins use.

They are namespaces, the webhook client, conversion, the authorizer and metrics.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from apiext.admission.attributes import Requester
from apiext.admission.metrics import Metrics
from apiext.admission.versions import Convert, plain_conversion
from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.storage.store import Entry
from apiext.webhooks.target import Target

if TYPE_CHECKING:  # CEL is imported when it is first used (decision 36)
    from apiext.cel.library.authorization import Question


class FindNamespace(Protocol):
    """Finds a namespace in the cache, else in the store; with ``newest``, only in the store."""

    def __call__(self, name: str, newest: bool = False, /) -> Awaitable[View | None]:
        """Return the namespace, None if it does not exist."""


Authorizer = Callable[[Requester, "Question"], tuple[bool, str]]
"""(user, question) → (whether it is allowed, reason)."""


class Poster(Protocol):
    """The client of webhooks (apiext.webhooks.client.Client)."""

    async def post(self, target: Target, body: bytes, timeout: float, *, owner: str) -> bytes:
        """POST JSON and return the body of the response; raises CallError."""


def allow_all(_: Requester, __: "Question") -> tuple[bool, str]:
    """Allow all requests: the default of ``PluginServices.authorize``."""
    return True, ""


Amend = Callable[[GroupResource, Entry, Callable[[Document], Document]], Awaitable[Entry | None]]
"""(resource, entry, change) → the entry with the changed status; None on a conflict, because the entry is stale."""


async def amend_nothing(_: GroupResource, __: Entry, ___: Callable[[Document], Document]) -> Entry | None:
    """Store nothing: the default of ``PluginServices.amend``."""
    return None


class PluginServices(Struct, frozen=True):
    """Services for plug-ins: namespaces, webhook client, conversion, authorizer, metrics.

    ``workers`` is true if other worker processes serve the same port. ``amend`` stores a new status of an object.
    """

    find_namespace: FindNamespace
    poster: Poster
    metrics: Metrics
    convert: Convert = plain_conversion
    authorize: Authorizer = allow_all
    workers: bool = False
    amend: Amend = amend_nothing
