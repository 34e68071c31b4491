"""Writes with guards, and the outcome of writes whose response was lost.

A guard is another key and its expected revision: etcd stores the write only if the key has this revision.
"""

import asyncio

from msgspec import Struct

from apiext.etcd import limits, messages, requests
from apiext.etcd.answers import revision_written
from apiext.etcd.calls import Caller, now
from apiext.etcd.channel import jittered
from apiext.etcd.errors import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OUT_OF_RANGE,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    Corrupt,
    EtcdError,
    Unavailable,
    UnknownOutcome,
    classify,
    is_transient,
    stale_token,
)
from apiext.etcd.scope import RateLimitedLog
from apiext.etcd.transport import Transport
from apiext.etcd.values import KeyValue, WriteResult, key_value

# Codes of errors after which nothing was written. ``_resolve`` knows two more such errors: a stale token, and the
# CORRUPT alarm. After any other error of a sent request, etcd may have stored the write.
_REFUSALS = frozenset(
    {
        INVALID_ARGUMENT,
        NOT_FOUND,
        PERMISSION_DENIED,
        RESOURCE_EXHAUSTED,
        FAILED_PRECONDITION,
        OUT_OF_RANGE,
        UNIMPLEMENTED,
        UNAUTHENTICATED,
    }
)

_read_answer = messages.TxnResponse.FromString  # bound once, since a lookup takes half as long as the call


class Attempt(Struct):
    """A write: its encoded Txn, and the data to find out whether etcd has stored it.

    ``value`` is None for a deletion. ``expected`` is the expected mod_revision of the key.
    """

    request: bytes
    key: bytes
    value: bytes | None
    expected: int
    began: float  # event loop time of the last attempt
    in_doubt: bool = False  # True if etcd may have stored an earlier attempt

    def is_effect(self, current: KeyValue) -> bool:
        """Report whether the current state of the key is certainly the result of this write.

        Only a create can be recognised, since its value contains a unique uid. Two clients may update the same state
        with equal bytes. Only one of these updates was stored, so the equal value proves nothing.
        """
        return not self.expected and current.value == self.value


def read_result(raw: bytes) -> WriteResult:
    """Parse the response of a Txn of ``requests.put`` or ``requests.delete``."""
    revision = revision_written(raw)
    if revision is not None:
        return WriteResult(True, revision)
    answer = _read_answer(raw)
    if answer.succeeded:
        return WriteResult(True, answer.header.revision)
    found = [response.response_range.kvs for response in answer.responses]
    current = key_value(found[0][0]) if found[0] else None
    guards = tuple(kvs[0].mod_revision if kvs else 0 for kvs in found[1:])
    return WriteResult(False, answer.header.revision, current, guards)


class Writer:
    """Sends writes, and retries them in such a way that etcd stores each write at most once."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._unknown_outcomes = RateLimitedLog()
        self._refusals = RateLimitedLog()

    async def write(self, attempt: Attempt, transport: Transport | None, error: EtcdError | None) -> WriteResult:
        """Complete a write whose first attempt failed or had no connection.

        ``transport`` is None if there was no connection.
        """
        try:
            return await self._complete(attempt, transport, error)
        except UnknownOutcome as doubt:
            key = attempt.key.decode(errors="replace")
            self._unknown_outcomes.warning("it is unknown whether etcd has written %s: %s", key, doubt.message)
            raise
        except Corrupt as refusal:
            self._refusals.warning("etcd has its CORRUPT alarm raised and accepts no writes: %s", refusal.message)
            raise

    async def _complete(self, attempt: Attempt, transport: Transport | None, error: EtcdError | None) -> WriteResult:
        deadline = now() + self._caller.budget
        pause = limits.FIRST_PAUSE
        while True:
            if error is not None and transport is not None:
                result = await self._resolve(attempt, transport, error)
                if result is not None:
                    return result
                if now() + pause > deadline:
                    raise self._final_error(attempt, error)
                await asyncio.sleep(jittered(pause))
                pause = min(pause * 2, limits.LAST_RETRY)
            try:
                transport = await self._caller.channel.connection(deadline)
            except EtcdError as failure:
                raise self._final_error(attempt, failure) from failure
            attempt.began = now()
            try:
                raw = await transport.unary(messages.TXN, attempt.request, limits.TRY)
            except EtcdError as caught:
                error = caught
            else:
                return self._outcome_of(attempt, read_result(raw))

    async def _resolve(self, attempt: Attempt, transport: Transport, error: EtcdError) -> WriteResult | None:
        """Return the outcome of a write after an error; None if the caller may send the write again."""
        if not error.sent:
            self._caller.avoid(transport, error, attempt.began)
            return None
        if error.code in _REFUSALS or stale_token(error) or isinstance(classify(error), Corrupt):
            if attempt.in_doubt:
                raise UnknownOutcome(error.code, f"the outcome of the write is unknown: {error.message}") from error
            await self._caller.recover(transport, error, attempt.began)  # raises the error, unless a new login may help
            return None
        attempt.in_doubt = True
        self._caller.avoid(transport, error, attempt.began)
        return self._outcome_by_read(attempt, error, await self._read_key(attempt, error))

    async def _read_key(self, attempt: Attempt, error: EtcdError) -> KeyValue | None:
        request = requests.get(attempt.key, 0, serializable=False)
        try:
            answer = messages.RangeResponse.FromString(await self._caller.read(messages.RANGE, request))
        except EtcdError as unread:
            raise UnknownOutcome(error.code, f"{error.message}; and then: {unread.message}") from unread
        return key_value(answer.kvs[0]) if answer.kvs else None

    def _outcome_by_read(self, attempt: Attempt, error: EtcdError, current: KeyValue | None) -> WriteResult | None:
        if current is not None:
            if attempt.is_effect(current):
                return WriteResult(True, current.mod_revision)
            if current.mod_revision == attempt.expected:
                return None  # a second attempt is safe, since etcd accepts only one write for the expected revision
            if attempt.value is None and current.create_revision <= attempt.expected:
                # Another client has changed the key; etcd has not stored this deletion.
                return WriteResult(False, current.mod_revision, current)
        raise UnknownOutcome(error.code, f"the outcome of the write is unknown: {error.message}")

    def _outcome_of(self, attempt: Attempt, result: WriteResult) -> WriteResult:
        current = result.current
        if result.ok or not attempt.in_doubt:
            return result
        if current is not None and current.mod_revision == attempt.expected:
            return result  # a guard has changed, so no attempt of this write can succeed
        if current is not None and attempt.is_effect(current):
            return WriteResult(True, current.mod_revision)
        raise UnknownOutcome(
            UNAVAILABLE, "the outcome of the write is unknown: a response was lost, and the key has changed since"
        )

    def _final_error(self, attempt: Attempt, error: EtcdError) -> EtcdError:
        if attempt.in_doubt:
            return UnknownOutcome(error.code, f"the outcome of the write is unknown: {error.message}")
        if is_transient(error):
            return Unavailable(UNAVAILABLE, f"nothing was written: {error.message}", sent=False)
        return classify(error)
