"""The errors of etcd: their gRPC statuses and texts, as clients of etcd expect them."""

from apiext.embedded import limits
from apiext.etcd.errors import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OUT_OF_RANGE,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    EtcdError,
)

MAX_MESSAGE = limits.MAX_REQUEST + (512 << 10)  # maximum bytes of a request that etcd's gRPC server reads


class StoreFault(Exception):
    """The store cannot be opened, or has failed.

    The message is a sentence for the administrator.
    """


class StoreInUse(StoreFault):
    """Another server has the store open."""


def compacted() -> EtcdError:
    """Return the error of a read of a compacted revision."""
    return EtcdError(OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")


def future() -> EtcdError:
    """Return the error of a read of a revision in the future."""
    return EtcdError(OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")


def empty_key() -> EtcdError:
    """Return the error of a request without a key."""
    return EtcdError(INVALID_ARGUMENT, "etcdserver: key is not provided")


def too_large() -> EtcdError:
    """Return the error of a request over limits.MAX_REQUEST."""
    return EtcdError(INVALID_ARGUMENT, "etcdserver: request is too large")


def unread(size: int) -> EtcdError:
    """Return the error of a request over MAX_MESSAGE: etcd's gRPC server does not read it."""
    return EtcdError(RESOURCE_EXHAUSTED, f"grpc: received message larger than max ({size} vs. {MAX_MESSAGE})")


def no_space() -> EtcdError:
    """Return the error of a put or of a new lease while the store is full."""
    return EtcdError(RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")


def no_lease() -> EtcdError:
    """Return the error of a put with a lease that does not exist."""
    return EtcdError(NOT_FOUND, "etcdserver: requested lease not found")


def lease_exists() -> EtcdError:
    """Return the error of a new lease whose id is in use."""
    return EtcdError(FAILED_PRECONDITION, "etcdserver: lease already exists")


def lease_too_long() -> EtcdError:
    """Return the error of a new lease whose time to live is too long."""
    return EtcdError(OUT_OF_RANGE, "etcdserver: too large lease TTL")


def no_auth() -> EtcdError:
    """Return the error of a login, since the store has no users."""
    return EtcdError(FAILED_PRECONDITION, "etcdserver: authentication is not enabled")


def unimplemented(what: str) -> EtcdError:
    """Return the error of a call, or call option, that the embedded store does not have."""
    return EtcdError(UNIMPLEMENTED, f"{what} is not part of the embedded store")


def closed() -> EtcdError:
    """Return the error of a call on a closed connection."""
    return EtcdError(UNAVAILABLE, "the connection to the embedded store is closed", sent=False)


def broken(text: str) -> EtcdError:
    """Return the error of a call on a store that has failed."""
    return EtcdError(UNAVAILABLE, f"the embedded store has failed: {text}")
