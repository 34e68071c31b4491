"""etcd's messages: classes from a private descriptor pool, and request templates that are refilled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_MOD = 2  # Compare.CompareTarget


def _pool() -> descriptor_pool.DescriptorPool:
    # private: another etcd library in the process registers the same names in the default pool
    pool = descriptor_pool.DescriptorPool()
    raw = (Path(__file__).parent / "pb" / "etcd.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(file)
    return pool


POOL = _pool()


def message_class(name: str) -> Any:
    """Return the class of a message of package etcdserverpb."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"etcdserverpb.{name}"))


RangeRequest, RangeResponse = message_class("RangeRequest"), message_class("RangeResponse")
TxnRequest, TxnResponse = message_class("TxnRequest"), message_class("TxnResponse")
CompactionRequest = message_class("CompactionRequest")
WatchRequest, WatchResponse = message_class("WatchRequest"), message_class("WatchResponse")
LeaseGrantRequest, LeaseGrantResponse = message_class("LeaseGrantRequest"), message_class("LeaseGrantResponse")
LeaseRevokeRequest = message_class("LeaseRevokeRequest")
LeaseKeepAliveRequest = message_class("LeaseKeepAliveRequest")
LeaseKeepAliveResponse = message_class("LeaseKeepAliveResponse")
AlarmRequest, AlarmResponse = message_class("AlarmRequest"), message_class("AlarmResponse")
StatusRequest, StatusResponse = message_class("StatusRequest"), message_class("StatusResponse")
DefragmentRequest = message_class("DefragmentRequest")
AuthenticateRequest, AuthenticateResponse = message_class("AuthenticateRequest"), message_class("AuthenticateResponse")

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
ALARM = "/etcdserverpb.Maintenance/Alarm"
STATUS = "/etcdserverpb.Maintenance/Status"
DEFRAGMENT = "/etcdserverpb.Maintenance/Defragment"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"

Guards = Sequence[tuple[bytes, int]]


class TxnTemplate:
    """A write of one key if it and its guards have the revisions expected, else a read of what they have.

    Filling and serialising happen without an await in between, so one object serves every call.
    """

    def __init__(self, guards: int, delete: bool) -> None:
        self._txn = TxnRequest()
        self._compare = self._txn.compare.add(target=_MOD, key=b"k", mod_revision=0)
        self._guards = [self._txn.compare.add(target=_MOD, key=b"k", mod_revision=0) for _ in range(guards)]
        wanted = self._txn.success.add()
        self._write = wanted.request_delete_range if delete else wanted.request_put
        self._write.key = b"k"
        self._current = self._txn.failure.add().request_range
        self._found = [self._txn.failure.add().request_range for _ in range(guards)]
        for found in self._found:
            found.keys_only = True

    def put(self, key: bytes, value: bytes, expected: int, guards: Guards, lease: int) -> bytes:
        """Return the request that puts the value."""
        write = self._write
        write.value = value
        write.lease = lease
        return self._fill(key, expected, guards)

    def delete(self, key: bytes, expected: int, guards: Guards) -> bytes:
        """Return the request that deletes the key."""
        return self._fill(key, expected, guards)

    def _fill(self, key: bytes, expected: int, guards: Guards) -> bytes:
        compare = self._compare
        compare.key = self._write.key = self._current.key = key
        compare.mod_revision = expected
        for (guard, revision), slot, found in zip(guards, self._guards, self._found, strict=True):
            slot.key = found.key = guard
            slot.mod_revision = revision
        return self._txn.SerializeToString()  # type: ignore[no-any-return]


class Templates:
    """The templates of one client, by number of guards."""

    def __init__(self) -> None:
        self._puts = [TxnTemplate(0, delete=False), TxnTemplate(1, delete=False)]
        self._deletes = [TxnTemplate(0, delete=True), TxnTemplate(1, delete=True)]
        self._get = RangeRequest()

    def put(self, key: bytes, value: bytes, expected: int, guards: Guards, lease: int) -> bytes:
        """Return a Txn that puts the value when everything has the revision expected."""
        count = len(guards)
        template = self._puts[count] if count < len(self._puts) else TxnTemplate(count, delete=False)
        return template.put(key, value, expected, guards, lease)

    def delete(self, key: bytes, expected: int, guards: Guards) -> bytes:
        """Return a Txn that deletes the key when everything has the revision expected."""
        count = len(guards)
        template = self._deletes[count] if count < len(self._deletes) else TxnTemplate(count, delete=True)
        return template.delete(key, expected, guards)

    def get(self, key: bytes, revision: int, serializable: bool) -> bytes:
        """Return a Range of one key."""
        get = self._get
        get.key = key
        get.revision = revision
        get.serializable = serializable
        return get.SerializeToString()  # type: ignore[no-any-return]
