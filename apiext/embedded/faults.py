"""Errors of etcd: gRPC status and text, as clients of etcd expect them."""

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

MAX_MESSAGE = limits.MAX_REQUEST + (512 << 10)  # bytes that etcd's gRPC server reads


class StoreFault(Exception):
    """The store cannot be opened, or has failed; the message is one sentence for the administrator."""


class StoreInUse(StoreFault):
    """Another server has the store open."""


def compacted() -> EtcdError:
    """Return the refusal of a revision that was compacted."""
    return EtcdError(OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")


def future() -> EtcdError:
    """Return the refusal of a revision in the future."""
    return EtcdError(OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")


def empty_key() -> EtcdError:
    """Return the refusal of a request without a key."""
    return EtcdError(INVALID_ARGUMENT, "etcdserver: key is not provided")


def too_large() -> EtcdError:
    """Return the refusal of a request over limits.MAX_REQUEST."""
    return EtcdError(INVALID_ARGUMENT, "etcdserver: request is too large")


def unread(size: int) -> EtcdError:
    """Return the refusal of a request over MAX_MESSAGE, which etcd's gRPC server does not read."""
    return EtcdError(RESOURCE_EXHAUSTED, f"grpc: received message larger than max ({size} vs. {MAX_MESSAGE})")


def no_space() -> EtcdError:
    """Return the refusal of a put over the quota."""
    return EtcdError(RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")


def no_lease() -> EtcdError:
    """Return the refusal of a put with a lease that does not exist."""
    return EtcdError(NOT_FOUND, "etcdserver: requested lease not found")


def lease_exists() -> EtcdError:
    """Return the refusal of a lease whose id is in use."""
    return EtcdError(FAILED_PRECONDITION, "etcdserver: lease already exists")


def lease_too_long() -> EtcdError:
    """Return the refusal of a lease over etcd's longest time to live."""
    return EtcdError(OUT_OF_RANGE, "etcdserver: too large lease TTL")


def no_auth() -> EtcdError:
    """Return the refusal of a login: the store has no users."""
    return EtcdError(FAILED_PRECONDITION, "etcdserver: authentication is not enabled")


def unimplemented(what: str) -> EtcdError:
    """Return the refusal of a call, or a variant of a call, that apiext does not use."""
    return EtcdError(UNIMPLEMENTED, f"{what} is not part of the embedded store")


def closed() -> EtcdError:
    """Return the failure of a call on a closed connection."""
    return EtcdError(UNAVAILABLE, "the connection to the embedded store is closed", sent=False)


def broken(text: str) -> EtcdError:
    """Return the failure of a call on a store that could not write."""
    return EtcdError(UNAVAILABLE, f"the embedded store cannot go on: {text}")
