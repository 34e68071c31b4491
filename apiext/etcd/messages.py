"""The protobuf messages of etcd: classes from a private descriptor pool, and the names of methods."""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _pool() -> descriptor_pool.DescriptorPool:
    # private: another etcd library in this process may register the same names in the default pool
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
AlarmRequest, AlarmResponse = message_class("AlarmRequest"), message_class("AlarmResponse")
StatusResponse = message_class("StatusResponse")
AuthenticateRequest, AuthenticateResponse = message_class("AuthenticateRequest"), message_class("AuthenticateResponse")

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
ALARM = "/etcdserverpb.Maintenance/Alarm"
STATUS = "/etcdserverpb.Maintenance/Status"
DEFRAGMENT = "/etcdserverpb.Maintenance/Defragment"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
