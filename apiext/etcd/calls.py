"""How a call gets its answer: logging in, trying again on another connection, giving up in time."""

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
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


class Login:
    """The credentials of a client; without a user it does nothing."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password
        self._lock = asyncio.Lock()
        self._renewed: dict[Transport, float] = {}

    async def greet(self, transport: Transport) -> None:
        """Log in on a new connection; AuthError when etcd does not know the user."""
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

    async def renew(self, transport: Transport, failed_at: float) -> None:
        """Log in again; callers whose calls began before the last renewal share it."""
        async with self._lock:
            if self._renewed.get(transport, -1.0) >= failed_at:
                return
            transport.set_token("")
            await self.greet(transport)
            self._renewed = {transport: now()}


class Caller:
    """Unary calls over a channel. ``patience`` is the number of seconds after which a call gives up."""

    def __init__(self, channel: Channel, login: Login, patience: float) -> None:
        self.channel = channel
        self.patience = patience
        self._login = login

    async def read(self, path: str, message: bytes, timeout: float = limits.TRY, since: float = 0.0) -> bytes:
        """Return the answer of a call that may be repeated, wanted since then or now; the errors of errors.py."""
        began = now()
        deadline = (since or began) + self.patience
        pause = limits.FIRST_PAUSE
        while True:
            transport = self.channel.live or await self.channel.connection(deadline)
            try:
                return await transport.unary(path, message, timeout)
            except EtcdError as error:
                await self.recover(transport, error, began)
                if now() + pause > deadline:
                    raise Unavailable(UNAVAILABLE, f"etcd does not answer: {error.message}") from error
            await asyncio.sleep(jittered(pause))
            pause = min(pause * 2, 1.0)
            began = now()

    async def recover(self, transport: Transport, error: EtcdError, began: float) -> None:
        """Prepare another try after an error of a call begun at ``began``; raise it when it is final."""
        if self._login.user and stale_token(error):
            await self._login.renew(transport, began)
        elif not is_transient(error):
            raise classify(error)
        self.avoid(transport, error, began)

    def avoid(self, transport: Transport, error: EtcdError, began: float) -> None:
        """Leave a connection whose member seems dead or cut off."""
        others = len(self.channel.endpoints) > 1
        # a member without its peers still sends frames, and answers only after 7 seconds
        well = transport.answered if others else transport.heard
        if error.code == DEADLINE_EXCEEDED and error.sent and well <= began:
            self.channel.retire(transport, "no answer within a call's deadline")
        elif others and (is_cut_off(error) or (is_hollow(error) and transport.answered <= began)):
            self.channel.retire(transport, error.message)


def is_hollow(error: EtcdError) -> bool:
    """Report whether a proxy without a connection to etcd sent this error."""
    return error.code == UNAVAILABLE and error.sent and not of_etcd(error)


def is_cut_off(error: EtcdError) -> bool:
    """Report whether an error means that the member has lost its peers, or has not joined them yet."""
    lost = "no leader" in error.message or "request timed out" in error.message
    return from_learner(error) or (error.code == UNAVAILABLE and lost)
