"""A KMS provider: its data keys and the health of its plug-in.

A provider has a current data key and the data keys of stored values. A plug-in encrypts data keys with its own key,
which has an id. A stored value consists of the encrypted data and a tail: the encrypted data key, the id of the
plug-in's key, and annotations. Usually, values with the same data key have the same tail. A data key of the kind KEY
encrypts values. A data key of the kind SEED is a seed from which the key of each value is derived. New data keys are
seeds.
"""

import asyncio
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from apiext.kms import limits, metrics
from apiext.kms.envelope import (
    KEY,
    SEED,
    Envelope,
    InvalidEnvelope,
    digest_of,
    key_id_fault,
    split,
    tail,
    unpacked,
    validate,
)
from apiext.kms.plugin import Plugin, PluginError
from apiext.meta import fields

# Seconds between Status calls of a healthy plug-in, as upstream's kmsv2PluginHealthzPositiveInterval.
KMS_POLL = 60.0
# Seconds between Status calls of a failing plug-in, as upstream's kmsv2PluginHealthzNegativeInterval.
KMS_POLL_FAILED = 10.0

log = logging.getLogger(__name__)

_VERSIONS = ("v2", "v2beta1")
_KEY_SIZES = (16, 24, 32)
_SEED_SIZE = 32
_NO_STATE = "got unexpected nil transformer"
_NON_GRPC = "unknown-non-grpc"
_NIL = "<nil>"
_ZERO = "0001-01-01T00:00:00Z"
_CACHE_LOCK = threading.Lock()  # several threads use the caches, since threads decrypt large values


class KeyUnavailable(Exception):
    """A data key is not available.

    ``status`` is the label in metrics. ``tried`` is false if a call of the plug-in may decrypt the data key now.
    """

    def __init__(self, text: str, status: str = _NON_GRPC, *, tried: bool = True) -> None:
        super().__init__(text)
        self.status = status
        self.tried = tried


class PluginCalls(Protocol):
    """The interface of a plug-in for its provider."""

    timeout: float

    async def status(self) -> Any:
        """Return the StatusResponse; raise PluginError."""

    async def encrypt(self, uid: str, plain: bytes) -> Any:
        """Return the EncryptResponse for a new data key; raise PluginError."""

    async def decrypt(self, uid: str, source: bytes, key_id: str, annotations: Mapping[str, bytes]) -> bytes:
        """Return the decrypted data key; raise PluginError."""

    async def close(self) -> None:
        """Close the connection to the plug-in."""


class DataKey(Struct, frozen=True):
    """A decrypted data key of a ``kind`` (KEY or SEED).

    ``key_id`` is the id of the plug-in's key that encrypts it, ``key_hash`` is the hash of this id.
    """

    kind: int
    key: bytes
    key_id: str
    key_hash: str

    def __repr__(self) -> str:  # without the key
        return f"DataKey({self.key_id!r})"


class CurrentKey(Struct, frozen=True):
    """The data key for new values until the time ``until``. ``tail`` is stored with each value."""

    seed: bytes
    key_id: str
    key_hash: str
    tail: bytes
    until: float

    def __repr__(self) -> str:  # without the seed
        return f"CurrentKey({self.key_id!r}, until={self.until})"


class _Refused(NamedTuple):
    until: float
    fault: KeyUnavailable


class Provider:
    """A ``kms`` provider of the encryption configuration.

    ``data_and_key`` and ``current_key`` never wait for the plug-in. ``fault`` is the last error of the plug-in, "" if
    the plug-in is healthy. ``current`` is the data key for new values, None before the first one is generated.
    """

    def __init__(
        self,
        name: str,
        plugin: PluginCalls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.timeout = plugin.timeout
        self.fault = "no status yet"
        self.current: CurrentKey | None = None
        self._plugin = plugin
        self._clock = clock
        self._version = ""
        self._valid_until = float("-inf")
        self._checking = asyncio.Lock()
        self._calls = asyncio.Semaphore(limits.KMS_CALLS)
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running_calls: dict[bytes, asyncio.Task[None]] = {}
        self._keys: dict[bytes, DataKey] = {}  # ``Envelope.digest`` → data key
        self._aliases: dict[bytes, DataKey] = {}  # digest of a tail as it is stored → its data key
        self._refused: dict[bytes, _Refused] = {}
        self._down: _Refused | None = None

    # -- life

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Get the status of the plug-in once, then start to get it periodically.

        If the call fails, set ``fault`` and raise nothing.
        """
        self._group = group
        await self.check()
        self._spawn(self._poll())

    async def stop(self) -> None:
        """Cancel the calls, and close the connection."""
        self._group = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._plugin.close()

    async def wait_until_healthy(self) -> None:
        """Get the status repeatedly until the plug-in is healthy."""
        while self.fault:
            await asyncio.sleep(limits.KMS_TTL_FAILED)
            await self.check()

    def probe(self) -> str:
        """Return the last error of the plug-in, "" if it is healthy.

        If the status is old, start to get a new status.
        """
        if self._group is not None and self._clock() >= self._valid_until and not self._checking.locked():
            self._spawn(self.check())
        return self.fault

    async def check(self) -> None:
        """Get the status, unless it is recent. If the plug-in has a new key, generate a data key."""
        async with self._checking:
            if self._clock() < self._valid_until:
                return
            try:
                fault = await self._check_status()
            except Exception as error:  # the next check must follow after any error
                log.exception("the call of the KMS provider %s failed", self.name)
                fault = str(error) or type(error).__name__
            if fault != self.fault:
                (log.warning if fault else log.info)("KMS provider %s: %s", self.name, fault or "healthy")
            self.fault = fault
            self._valid_until = self._clock() + (limits.KMS_TTL_FAILED if fault else limits.KMS_TTL)
            if not fault:
                self._down = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(KMS_POLL_FAILED if self.fault else KMS_POLL)
            await self.check()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- the status, and the current data key

    async def _check_status(self) -> str:
        try:
            answer = await self._plugin.status()
        except PluginError as error:
            return f"failed to perform status section of the healthz check for KMS Provider {self.name}, error: {error}"
        faults = []
        if answer.healthz != "ok":
            faults.append(f"got unexpected healthz status: {answer.healthz[: limits.KMS_TEXT]}")
        version = answer.version[: limits.KMS_TEXT]
        if version not in _VERSIONS:
            faults.append(f"expected KMSv2 API version v2, got {version}")
        else:
            self._version = self._version or version
            if self._version != version:
                faults.append(
                    "KMSv2 API version should not change after the initial status response version "
                    f"{self._version}, got {version}"
                )
        word, why = key_id_fault(answer.key_id)
        if why:
            metrics.INVALID.slot(self.name, word).value += 1
            hashed = metrics.hash_of(answer.key_id)
            faults.append(f'got invalid KMSv2 KeyID hash "{hashed}": {why}')
        else:
            metrics.status_seen(self.name, answer.key_id)
            if fault := await self._use_key(answer.key_id):
                faults.append(fault)
        return f"kmsv2 Provider {self.name} is not healthy, error: {fields.aggregate(faults)}" if faults else ""

    async def _use_key(self, key_id: str) -> str:
        """Make a data key current that the plug-in encrypts with its key ``key_id``.

        If the current data key has this key id, extend its validity. Otherwise generate a data key, and call the
        plug-in to encrypt it. The validity begins before the call, so that it never ends too late. Return "", or the
        error if the plug-in does not encrypt the new data key with this key. Then the last data key is used until it
        expires.
        """
        until = self._clock() + limits.KMS_WRITES
        before = self.current
        if before is not None and before.key_id == key_id:
            self.current = CurrentKey(before.seed, before.key_id, before.key_hash, before.tail, until)
            return ""
        uid, used, fault = str(uuid.uuid4()), "", _NIL
        began = time.perf_counter()
        seed = os.urandom(_SEED_SIZE)
        metrics.GENERATION.observe(time.perf_counter() - began)
        try:
            answer = await self._plugin.encrypt(uid, seed)
            source, annotations = bytes(answer.ciphertext), dict(answer.annotations)
            validate(SEED, answer.key_id, source, annotations)
            used = answer.key_id
        except PluginError as error:
            fault = f"failed to encrypt DEK, error: {error}"
        except InvalidEnvelope as error:
            fault = str(error)
        if fault == _NIL and used == key_id:
            hashed, rest = metrics.hash_of(key_id), tail(SEED, key_id, source, annotations)
            self._cache(digest_of(rest), DataKey(SEED, seed, key_id, hashed))
            self.current = CurrentKey(seed, key_id, hashed, rest, until)
            log.info("KMS provider %s encrypts with a new data key, of the plug-in's key %s", self.name, hashed)
            return ""
        return (
            f'failed to rotate DEK uid="{uid}", useSeed=true, errState={_NIL if before else _NO_STATE}, '
            f'errGen={fault}, statusKeyIDHash="{metrics.hash_of(key_id)}", encryptKeyIDHash="{metrics.hash_of(used)}", '
            f'stateKeyIDHash="{before.key_hash if before else ""}", '
            f"expirationTimestamp={self._time(before.until) if before else _ZERO}"
        )

    def current_key(self) -> CurrentKey:
        """Return the data key for new values; raise KeyUnavailable. A thread may call this method."""
        current = self.current
        if current is None:
            raise KeyUnavailable(_NO_STATE)
        if (now := self._clock()) > current.until:
            raise KeyUnavailable(
                f'encryptedDEKSource with keyID hash "{current.key_hash}" expired at {self._time(current.until)} '
                f"(current time is {self._time(now)})"
            )
        return current

    def _time(self, moment: float) -> str:
        """Return a time of ``clock`` in Go's format."""
        at = datetime.fromtimestamp(time.time() + moment - self._clock(), UTC).astimezone()
        text = at.isoformat(timespec="seconds")
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text

    # -- data keys of stored values

    def data_and_key(self, raw: bytes) -> tuple[bytes, DataKey]:
        """Return the encrypted data of a stored value, and its data key; raise KeyUnavailable.

        A thread may call this method.
        """
        parts = split(raw)
        found = self._aliases.get(digest_of(parts[1])) if parts is not None else None
        if parts is not None and found is not None:
            return parts[0], found
        envelope = self._unpacked(raw)
        if self.current is None:
            raise KeyUnavailable(_NO_STATE)
        found = self._keys.get(envelope.digest)
        if found is None:
            raise self._missing(envelope.digest)
        if parts is not None and parts[0] == envelope.data:
            _put(self._aliases, digest_of(parts[1]), found)
        return envelope.data, found

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Call the plug-in to decrypt missing data keys of stored values, and await the results.

        A failure is cached for limits.KMS_TTL_FAILED seconds.
        """
        missing = {it.digest: it for raw in values if (it := self._missing_key_of(raw)) is not None}
        if missing and self._group is not None:
            await asyncio.wait([self._call_for(envelope) for envelope in missing.values()])

    def _missing_key_of(self, raw: bytes) -> Envelope | None:
        """Return the envelope of a value for whose data key the plug-in must be called, else None.

        The result is None if the data key is cached, if the value is invalid, after a recent failed call, and while
        there is no current data key.
        """
        parts = split(raw)
        if self.current is None or (parts is not None and digest_of(parts[1]) in self._aliases):
            return None
        try:
            envelope = self._unpacked(raw)
        except KeyUnavailable:
            return None
        missing = envelope.digest not in self._keys and not self._missing(envelope.digest).tried
        return envelope if missing else None

    def _unpacked(self, raw: bytes) -> Envelope:
        try:
            return unpacked(raw)
        except InvalidEnvelope as error:
            raise KeyUnavailable(str(error)) from error

    def _missing(self, digest: bytes) -> KeyUnavailable:
        refused, now = self._refused.get(digest) or self._down, self._clock()
        if refused is not None and now < refused.until:
            return KeyUnavailable(str(refused.fault), refused.fault.status)
        return KeyUnavailable("failed to decrypt DEK, error: the plug-in was not called yet", tried=False)

    def _call_for(self, envelope: Envelope) -> asyncio.Task[None]:
        """Return the task that decrypts a data key.

        All callers share it; it continues if a caller is cancelled.
        """
        known = self._running_calls.get(envelope.digest)
        if known is None:
            known = self._running_calls[envelope.digest] = self._spawn(self._decrypt(envelope))
        return known

    async def _decrypt(self, envelope: Envelope) -> None:
        digest = envelope.digest
        try:
            async with self._calls:
                if self._missing(digest).tried:
                    return  # another call has found in the meantime that the plug-in is not available
                metrics.MISSES.slot().value += 1
                uid = str(uuid.uuid4())
                key = await self._plugin.decrypt(uid, envelope.source, envelope.key_id, envelope.annotations)
            _validate_key(envelope.kind, key)
        except PluginError as error:
            self._refuse(digest, KeyUnavailable(f"failed to decrypt DEK, error: {error}", error.status), error.reached)
        except KeyUnavailable as error:
            self._refuse(digest, error, reached=True)
        except Exception as error:  # after any error, waiting callers continue without the key
            log.exception("the call of the KMS provider %s failed", self.name)
            self._refuse(digest, KeyUnavailable(f"failed to decrypt DEK, error: {error}"), reached=True)
        else:
            self._refused.pop(digest, None)
            self._cache(digest, DataKey(envelope.kind, key, envelope.key_id, metrics.hash_of(envelope.key_id)))
        finally:
            self._running_calls.pop(digest, None)

    def _refuse(self, digest: bytes, fault: KeyUnavailable, reached: bool) -> None:
        refused = _Refused(self._clock() + limits.KMS_TTL_FAILED, fault)
        _put(self._refused, digest, refused)
        if not reached:
            self._down = refused
            self._valid_until = self._clock()  # so that the next health check gets a new status

    def _cache(self, digest: bytes, found: DataKey) -> None:
        _put(self._keys, digest, found)
        _put(self._aliases, digest, found)
        metrics.KEYS.slot(self.name).value = len(self._keys)


def _validate_key(kind: int, key: bytes) -> None:
    if kind == SEED and len(key) < _SEED_SIZE:
        raise KeyUnavailable(f"invalid seed length {len(key)} used for key generation")
    if kind == KEY and len(key) not in _KEY_SIZES:
        raise KeyUnavailable(f"crypto/aes: invalid key size {len(key)}")


def _put(kept: dict[bytes, Any], digest: bytes, value: Any) -> None:
    """Cache a value. If the cache has more than limits.KMS_KEYS values, evict the oldest."""
    with _CACHE_LOCK:
        kept[digest] = value
        if len(kept) > limits.KMS_KEYS:
            del kept[next(iter(kept))]


def service(name: str, endpoint: str, timeout: float) -> Provider:
    """Return a provider for the plug-in at an endpoint.

    ``timeout`` is the maximum time of a call in seconds.
    """
    return Provider(name, Plugin(name, endpoint, timeout))


def faults_of(providers: Iterable[Provider]) -> str:
    """Return the errors of all plug-ins as the text for /readyz/kms-providers.

    Return "" if there are none.
    """
    found = ((number, provider.probe()) for number, provider in enumerate(providers))
    faults = [f"kms-provider-{number}: {fault}" for number, fault in found if fault]
    return fields.aggregate(faults) if faults else ""


async def start_all(providers: Iterable[Provider], group: asyncio.TaskGroup) -> None:
    """Start providers concurrently, so that none waits for the plug-in of another provider."""
    await asyncio.gather(*(provider.start(group) for provider in providers))


async def stop_all(providers: Iterable[Provider]) -> None:
    """Stop all providers."""
    for provider in providers:
        await provider.stop()
