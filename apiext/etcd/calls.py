"""Unary calls with login, retries, and a time budget."""

import asyncio

from apiext.etcd import limits, messages
from apiext.etcd.channel import Channel, jittered
from apiext.etcd.errors import (
    DEADLINE_EXCEEDED,
    FAILED_PRECONDITION,
    UNAVAILABLE,
    EtcdError,
    Unavailable,
    classify,
    from_learner,
    is_transient,
    of_etcd,
    stale_token,
)
from apiext.etcd.transport import Transport


def now() -> float:
    """Return the time of the running event loop."""
    return asyncio.get_running_loop().time()


class Login:
    """The credentials of a client. Without a user, there is no login."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password
        self._lock = asyncio.Lock()
        self._renewed: dict[Transport, float] = {}

    async def log_in(self, transport: Transport) -> None:
        """Log in on a connection; raise EtcdError. If etcd has authentication disabled, do nothing."""
        if not self.user:
            return
        request = messages.AuthenticateRequest(name=self.user, password=self._password).SerializeToString()
        try:
            raw = await transport.unary(messages.AUTHENTICATE, request, limits.TRY)
        except EtcdError as error:
            if error.code == FAILED_PRECONDITION and "not enabled" in error.message:
                return
            raise
        transport.set_token(messages.AuthenticateResponse.FromString(raw).token)

    async def renew(self, transport: Transport, began_at: float) -> None:
        """Get a new auth token, unless another caller got one after ``began_at``.

        ``began_at`` is the event loop time at which the failed call began.
        """
        async with self._lock:
            if self._renewed.get(transport, -1.0) >= began_at:
                return
            transport.set_token("")
            await self.log_in(transport)
            self._renewed = {transport: now()}


class Caller:
    """Unary calls over a channel.

    ``budget`` is the number of seconds in which a call is retried.
    """

    def __init__(self, channel: Channel, login: Login, budget: float) -> None:
        self.channel = channel
        self.budget = budget
        self._login = login

    async def read(self, path: str, message: bytes, timeout: float = limits.TRY, since: float = 0.0) -> bytes:
        """Return the response of a call that is safe to repeat.

        Raise Unavailable if the budget is exhausted, or another EtcdError if a retry cannot help. ``timeout`` is the
        time of one attempt in seconds. The budget begins at ``since`` (event loop time, 0: now).
        """
        began = now()
        deadline = (since or began) + self.budget
        pause = limits.FIRST_PAUSE
        while True:
            transport = self.channel.live or await self.channel.connection(deadline)
            try:
                return await transport.unary(path, message, timeout)
            except EtcdError as error:
                await self.recover(transport, error, began)
                if now() + pause > deadline:
                    raise Unavailable(UNAVAILABLE, f"etcd does not respond: {error.message}") from error
            await asyncio.sleep(jittered(pause))
            pause = min(pause * 2, limits.LAST_RETRY)
            began = now()

    async def recover(self, transport: Transport, error: EtcdError, began: float) -> None:
        """Prepare a retry of a call that began at ``began`` (event loop time).

        Raise the error if a retry cannot help.
        """
        if self._login.user and stale_token(error):
            await self._login.renew(transport, began)
        elif not is_transient(error):
            raise classify(error)
        self.avoid(transport, error, began)

    def avoid(self, transport: Transport, error: EtcdError, began: float) -> None:
        """Close the connection if its member does not respond.

        If there are other endpoints, also close the connection to a member that has lost its peers, or to a proxy that
        has lost the member.
        """
        has_others = len(self.channel.endpoints) > 1
        # A member that has lost its peers still sends frames, but responds only after 7 seconds.
        last_sign = transport.last_response_at if has_others else transport.last_byte_at
        if error.code == DEADLINE_EXCEEDED and error.sent and last_sign <= began:
            self.channel.retire(transport, "no response within the deadline of a call")
        elif has_others and (is_isolated(error) or (is_proxy_error(error) and transport.last_response_at <= began)):
            self.channel.retire(transport, error.message)


def is_proxy_error(error: EtcdError) -> bool:
    """Report whether the error comes from a proxy that has no connection to etcd."""
    return error.code == UNAVAILABLE and error.sent and not of_etcd(error)


def is_isolated(error: EtcdError) -> bool:
    """Report whether an error means that the member has lost its peers or not yet joined them."""
    lost = "no leader" in error.message or "request timed out" in error.message
    return from_learner(error) or (error.code == UNAVAILABLE and lost)
