"""Translate errors of the store to the Status for the client.

Verbs translate some of these errors themselves; this module translates the rest.
"""

from collections.abc import Sequence
from types import TracebackType

from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.storage import limits as storage_limits
from apiext.storage import store

COMPACTED = "The resourceVersion for the provided list is too old."
SPACE = "etcdserver: mvcc: database space exceeded"
UNKNOWN = "the outcome of the write is unknown: the store did not say whether it happened"


def invalid_object(key: str, fault: str) -> str:
    """Return the message of upstream's store for a failed precondition."""
    return f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {fault}"


class Undecodable(status.StatusError):
    """The 500 for stored objects that cannot be decrypted, decoded or converted (KEP 3926)."""

    __slots__ = ("fault",)

    def __init__(self, error: status.StatusError, fault: store.Fault) -> None:
        super().__init__(error.code, error.reason, error.message, error.details)
        self.fault = fault

    def of_update(self) -> status.StatusError:
        """Return the error of an update of the object; upstream's text differs from that of a read."""
        text = str(self.fault)
        return status.internal(text) if self.fault.undecryptable else status.unknown(text)


def undecodable(faults: Sequence[store.Fault], resource: GroupResource, *, listed: bool) -> Undecodable:
    """Return the error of a read or list that meets undecodable objects (``faults``).

    If ``listed`` is true, return the error of a list with all of these objects, else the error of a read of the first
    object.
    """
    first = faults[0]
    if not listed:
        return Undecodable(status.internal(_corrupt_object(first.path, first)), first)
    texts = [_corrupt_object(fault.key, fault) for fault in faults]
    causes = [
        {"reason": "UnexpectedServerResponse", "message": text, "field": fault.key}
        for text, fault in zip(texts, faults, strict=True)
    ]
    if len(faults) >= storage_limits.ERRORS_LISTED:
        causes.append({"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"})
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    message = f"failed to read one or more {resource} from the storage: {texts[0]}{more}"
    details = {"name": "list", "group": resource.group, "kind": resource.resource, "causes": causes}
    details = {key: value for key, value in details.items() if value}
    return Undecodable(status.StatusError(500, "StorageReadError", message, details), first)


def _corrupt_object(key: str, fault: store.Fault) -> str:
    return f"StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {fault}"


class _Translated:
    """A context manager without state, which is cheap for each request.

    contextlib.contextmanager would add three calls to each request.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, store.StoreError):
            raise as_status(error) from error


_TRANSLATED = _Translated()


def translated() -> _Translated:
    """Return a context manager that translates errors of the store to the Status for the client."""
    return _TRANSLATED


def of_store(fault: BaseException) -> bool:
    """Return whether a Status reports an error of the store itself.

    The store may have executed a write that failed with such an error, so the write must not be retried.
    """
    return isinstance(fault.__cause__, store.StoreError)


def as_status(error: store.StoreError) -> status.StatusError:
    """Return the Status of a storage error that no verb handles itself."""
    if isinstance(error, store.Compacted):
        return status.expired(COMPACTED)
    if isinstance(error, store.FutureRevision):
        return status.too_large_resource_version(error.requested, error.current, error.retry_after)
    if isinstance(error, store.Malformed):
        return undecodable(error.faults, error.resource, listed=error.listed)
    if isinstance(error, store.NotEncrypted):
        return status.internal(str(error))
    if isinstance(error, store.TooLarge):
        return status.unknown("etcdserver: request is too large")
    if isinstance(error, store.OutOfSpace):
        return status.internal(SPACE)
    if isinstance(error, store.Corrupt):
        return status.internal(str(error))
    if isinstance(error, store.UnknownOutcome):
        return status.timeout(UNKNOWN)
    if isinstance(error, store.NotReady):
        return status.too_many_requests("storage is (re)initializing")
    if isinstance(error, store.Overloaded):
        return status.too_many_requests(f"{error}; try again")
    return status.unavailable(str(error) or "the store does not respond; try again")
