"""Storage errors as the Status that a client sees: the only place where one becomes the other."""

from types import TracebackType

from apiext.documents.quotes import go_quote
from apiext.meta import status
from apiext.storage import store

COMPACTED = "The resourceVersion for the provided list is too old."
SPACE = "etcdserver: mvcc: database space exceeded"
UNKNOWN = "the outcome of the write is unknown: the store did not say whether it happened"


def invalid_object(key: str, fault: str) -> str:
    """Return what upstream's store says of a precondition that failed."""
    return f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {fault}"


class _Translated:
    """A context without state: one made by contextlib would cost each request three calls more."""

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
    """Turn what the store raises inside a ``with`` into what the client reads."""
    return _TRANSLATED


def of_store(fault: BaseException) -> bool:
    """Whether a Status tells of the store itself: then the write may have happened, and is not decided on anew."""
    return isinstance(fault.__cause__, store.StoreError)


def as_status(error: store.StoreError) -> status.StatusError:
    """Return the Status of a storage error that no verb handles itself."""
    if isinstance(error, store.Compacted):
        return status.expired(COMPACTED)
    if isinstance(error, store.FutureRevision):
        return status.too_large_resource_version(error.asked, error.current, error.again)
    if isinstance(error, store.Sealed):
        where = f"unable to transform key {go_quote(error.key)}: " if error.listed else ""
        return status.internal(f"{where}{error.reason}")
    if isinstance(error, store.NotSealed):
        return status.internal(str(error))
    if isinstance(error, store.Malformed):
        return status.internal(f"unable to read {error.key}: {error.reason}")
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
    return status.unavailable(str(error) or "the store does not answer; try again")
