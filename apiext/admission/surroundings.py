"""Services that admission plug-ins use: namespaces, webhook client, conversion, authorizer, metrics."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from apiext.admission.attributes import Requester
from apiext.admission.metrics import Metrics
from apiext.admission.versions import Convert, plain_conversion
from apiext.documents.document import View
from apiext.webhooks.target import Target

if TYPE_CHECKING:  # CEL is imported when it is first used (decision 36)
    from apiext.cel.library.authorization import Question


class FindNamespace(Protocol):
    """Finds a namespace as the cache has it, else the store; as the store has it where the newest is wanted."""

    def __call__(self, name: str, newest: bool = False, /) -> Awaitable[View | None]:
        """Return it, None when it is not there."""


Authorizer = Callable[[Requester, "Question"], tuple[bool, str]]
"""(user, question) → whether it is allowed, and the reason."""


class Poster(Protocol):
    """The client of webhooks (apiext.webhooks.client.Client)."""

    async def post(self, target: Target, body: bytes, timeout: float, *, owner: str) -> bytes:
        """POST JSON and return the answer's body; raises CallError."""


def allow_all(_: Requester, __: "Question") -> tuple[bool, str]:
    """Allow everything: the authorizer of expressions if there is no authorization."""
    return True, ""


class Surroundings(Struct, frozen=True):
    """Services for plug-ins: namespaces, the webhook client, conversion, the authorizer, metrics.

    ``workers`` if other workers serve the same port.
    """

    find_namespace: FindNamespace
    poster: Poster
    metrics: Metrics
    convert: Convert = plain_conversion
    authorize: Authorizer = allow_all
    workers: bool = False
