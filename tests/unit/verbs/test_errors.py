"""Errors for clients if etcd refuses, is overloaded or leaves a write's outcome unknown."""

import pytest

from apiext.etcd import errors
from apiext.etcd.errors import EtcdError, classify
from apiext.storage.etcd_store import store_error
from apiext.verbs.errors import as_status

ROWS: list[tuple[EtcdError, int, str, int]] = [  # etcd's error, code, reason, seconds of Retry-After
    (EtcdError(11, "etcdserver: mvcc: required revision has been compacted"), 410, "Expired", 0),
    (EtcdError(11, "etcdserver: mvcc: required revision is a future revision"), 504, "Timeout", 1),
    (EtcdError(8, "etcdserver: mvcc: database space exceeded"), 500, "InternalError", 0),
    (EtcdError(15, "etcdserver: corrupt cluster"), 500, "InternalError", 0),
    (EtcdError(8, "etcdserver: too many requests"), 429, "TooManyRequests", 1),
    (EtcdError(3, "etcdserver: request is too large"), 500, "", 0),
    (errors.Unavailable(14, "etcd is not reachable", sent=False), 503, "ServiceUnavailable", 1),
    (errors.UnknownOutcome(4, "the write is in doubt"), 504, "Timeout", 0),
    (EtcdError(7, "etcdserver: permission denied"), 503, "ServiceUnavailable", 1),
]


@pytest.mark.rows("ERR-20", "RV-002", "RV-003")
@pytest.mark.parametrize(("said", "code", "reason", "after"), ROWS, ids=lambda it: getattr(it, "message", None))
def test_etcd_errors_map_to_status_codes(said: EtcdError, code: int, reason: str, after: int) -> None:
    told = as_status(store_error(classify(said), requested=9, current=5))
    assert (told.code, told.reason, told.retry_after) == (code, reason, after)
