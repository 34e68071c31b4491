"""The protobuf messages of etcd as classes, and the names of the gRPC methods.

The classes are from a private descriptor pool.
"""

from pathlib import Path
from typing import Any

from apiext.system.descriptors import class_of, pool_of

POOL = pool_of(Path(__file__).parent / "pb" / "etcd.binpb")


def message_class(name: str) -> Any:
    """Return the class of a message of the protobuf package etcdserverpb."""
    return class_of(POOL.FindMessageTypeByName(f"etcdserverpb.{name}"))


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
