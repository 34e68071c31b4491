"""Errors of calls to etcd, as classes for the combinations of gRPC status and text."""

CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 1, 2, 3, 4, 5
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION = 7, 8, 9
OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS, UNAUTHENTICATED = 11, 12, 13, 14, 15, 16


class EtcdError(Exception):
    """A failed call, with its gRPC status.

    ``sent`` is False if etcd has certainly not processed the request.
    """

    def __init__(self, code: int, message: str, sent: bool = True) -> None:
        super().__init__(code, message, sent)
        self.code = code
        self.message = message
        self.sent = sent

    def __str__(self) -> str:
        return f"{self.message} (gRPC status {self.code})"


class Compacted(EtcdError):
    """The requested revision is compacted.

    ``oldest`` is the first remaining revision, 0 if unknown.
    """

    def __init__(
        self, message: str = "etcdserver: mvcc: required revision has been compacted", oldest: int = 0
    ) -> None:
        super().__init__(OUT_OF_RANGE, message)
        self.oldest = oldest


class FarBehind(Compacted):
    """A watch has missed so many revisions that a new list is faster than reading them."""


class FutureRevision(EtcdError):
    """The requested revision is higher than the head revision."""


class TooLarge(EtcdError):
    """The request is over etcd's --max-request-bytes."""


class OutOfSpace(EtcdError):
    """The store is over its quota, or its disk is full.

    It accepts only deletions and compactions.
    """


class Corrupt(EtcdError):
    """etcd has raised its CORRUPT alarm, since the data of its members differ.

    Nothing was written.
    """


class Overloaded(EtcdError):
    """etcd has too many requests in its queue; nothing was written."""


class Unavailable(EtcdError):
    """No endpoint responded in time; nothing was written."""


class UnknownOutcome(EtcdError):
    """A write was sent, and its outcome is unknown."""


class AuthError(EtcdError):
    """The credentials are wrong, or do not allow the call."""


class StoreReplaced(EtcdError):
    """The store has lost revisions, or another store has replaced it.

    All data read before is invalid.
    """


class Closed(EtcdError):
    """The client was closed."""

    def __init__(self) -> None:
        super().__init__(CANCELLED, "the etcd client is closed", sent=False)


# (gRPC status, part of the text, class of the error). Some errors have the same status; etcd's texts are stable.
_TEXTS: tuple[tuple[int, str, type[EtcdError]], ...] = (
    (OUT_OF_RANGE, "future revision", FutureRevision),
    (INVALID_ARGUMENT, "request is too large", TooLarge),
    (RESOURCE_EXHAUSTED, "grpc: received message larger than max", TooLarge),  # from etcd's gRPC server
    (RESOURCE_EXHAUSTED, "space exceeded", OutOfSpace),
    (RESOURCE_EXHAUSTED, "too many requests", Overloaded),
    (DATA_LOSS, "corrupt cluster", Corrupt),  # every member refuses every write with this error
    (INVALID_ARGUMENT, "authentication failed", AuthError),
    (PERMISSION_DENIED, "", AuthError),
    (UNAUTHENTICATED, "", AuthError),
)

_STALE_TOKEN = (
    "invalid auth token",
    "revision of auth store is old",
    "revision in header is old",
    "user name is empty",
)


def classify(error: EtcdError) -> EtcdError:
    """Return the error as an instance of the class for its gRPC status and text."""
    if type(error) is not EtcdError:
        return error
    if error.code == OUT_OF_RANGE and "compacted" in error.message:
        return Compacted(error.message)
    for code, text, kind in _TEXTS:
        if error.code == code and text in error.message:
            return kind(error.code, error.message, error.sent)
    return error


def stale_token(error: EtcdError) -> bool:
    """Report whether a new login may fix the error."""
    # old versions of etcd report a stale token as UNKNOWN
    coded = error.code in {UNAUTHENTICATED, INVALID_ARGUMENT, FAILED_PRECONDITION, UNKNOWN}
    return coded and is_stale_token_text(error.message)


def is_stale_token_text(text: str) -> bool:
    """Report whether an error text of etcd is about an expired or invalid token."""
    return any(known in text for known in _STALE_TOKEN)


def is_transient(error: EtcdError) -> bool:
    """Report whether a retry of a read may succeed, on this endpoint or on another endpoint."""
    temporary = error.code in {CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE}
    return not error.sent or temporary or _stopping(error) or from_learner(error)


def from_learner(error: EtcdError) -> bool:
    """Report whether an error means that the member is a learner, which refuses most requests."""
    # the text is compared, since etcd 3.6 uses another status than earlier versions
    return "not supported for learner" in error.message


def of_etcd(error: EtcdError) -> bool:
    """Report whether the error comes from etcd itself and not from a proxy."""
    return error.message.startswith(("etcdserver: ", "auth: "))


def _stopping(error: EtcdError) -> bool:
    # When etcd shuts down, its open calls fail with these texts.
    return error.code == UNKNOWN and ("server stopped" in error.message or "context canceled" in error.message)
