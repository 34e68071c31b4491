"""Metrics of KMS plug-ins and their keys, with upstream's names (MTR-001)."""

import hashlib
import time

from apiext.kms import limits
from apiext.telemetry import Family, HistogramFamily, Slot

FROM_STORAGE, TO_STORAGE = "from_storage", "to_storage"
_SERVER = "apiserver_id_hash"
_NO_SERVER = ""  # this server has no identity
_USE = ("transformation_type", "provider_name", "key_id_hash", _SERVER)


class Recent(Family):
    """A metric family with at most limits.KMS_LABELS sets of labels.

    The limit is needed since plug-ins can send any number of key ids.
    """

    def slot(self, *values: str) -> Slot:
        """Return the counter for these label values.

        A new counter may evict the least recently used counter.
        """
        found = self._slots.pop(values, None) or Slot()
        self._slots[values] = found
        if len(self._slots) > limits.KMS_LABELS:
            del self._slots[next(iter(self._slots))]
        return found


USED = Recent(
    "apiserver_envelope_encryption_key_id_hash_total",
    "counter",
    "Number of uses of a plug-in's key, by operation, provider, and key.",
    _USE,
)
USED_AT = Recent(
    "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
    "gauge",
    "Time of the last use of a plug-in's key.",
    _USE,
)
STATUS_AT = Recent(
    "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
    "gauge",
    "Time of the last status response of a plug-in, by the key that the response named.",
    ("provider_name", "key_id_hash", _SERVER),
)
INVALID = Family(
    "apiserver_envelope_encryption_invalid_key_id_from_status_total",
    "counter",
    "Number of statuses of a plug-in with an invalid key id, by error.",
    ("provider_name", "error"),
)
KEYS = Family(
    "apiserver_envelope_encryption_dek_source_cache_size",
    "gauge",
    "Number of decrypted data keys in memory. A restart of the server decrypts about the same number.",
    ("provider_name",),
)
CALLS = HistogramFamily(
    "apiserver_envelope_encryption_kms_operations_latency_seconds",
    "Duration in seconds of calls of plug-ins, by gRPC status.",
    ("provider_name", "method_name", "grpc_status_code"),
    [1e-4 * 2**power for power in range(20)],
)
MISSES = Family(
    "apiserver_storage_envelope_transformation_cache_misses_total",
    "counter",
    "Number of calls of a plug-in to decrypt a data key.",
)
GENERATION = HistogramFamily(
    "apiserver_storage_data_key_generation_duration_seconds",
    "Latencies in seconds of the generation of data keys.",
    (),
    [5e-6 * 2**power for power in range(14)],
)
FAMILIES: tuple[Family | HistogramFamily, ...] = (USED, USED_AT, STATUS_AT, INVALID, KEYS, CALLS, MISSES, GENERATION)


def hash_of(text: str) -> str:
    """Return the hash of a key id for logs and metrics, "" for an empty id."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else ""


def used(operation: str, provider: str, key_hash: str) -> None:
    """Count one use of a plug-in's key, and record its time.

    ``operation`` is FROM_STORAGE or TO_STORAGE.
    """
    USED.slot(operation, provider, key_hash, _NO_SERVER).value += 1
    USED_AT.slot(operation, provider, key_hash, _NO_SERVER).value = round(time.time(), 3)


def status_seen(provider: str, key_id: str) -> None:
    """Set the time of the last status with this key id to the current time."""
    STATUS_AT.slot(provider, hash_of(key_id), _NO_SERVER).value = round(time.time(), 3)
