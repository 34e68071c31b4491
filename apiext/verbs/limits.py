"""Limits of requests on objects."""

# Seconds that a watch from a future resourceVersion waits for it. Beyond: 410, and the client lists again.
AHEAD_WAIT = 1.0
# Seconds of one writer of an object while another writer waits. Beyond: the next writer begins.
WRITER_TURN = 1.0
# Names tried for generateName. Beyond: 409. Upstream: maxNameGenerationCreateAttempts.
CREATE_NAME_ATTEMPTS = 8
# Seconds between the allocation of a service address and its write. Beyond: it is free again.
ADDRESS_GIVEN = 5.0
# Addresses of a network that services without a requested address can get. Beyond: they must be requested.
ADDRESSES_OF_A_FAMILY = 1 << 20
# Allocated addresses and ports that are not written yet. Beyond: the oldest is free again.
ADDRESSES_GIVEN = 4096
# Addresses or ports tried at random. Beyond: they are searched in order.
ADDRESS_TRIES = 64
# Characters of selectors parsed on the event loop. Beyond: a thread.
SELECTOR_INLINE = 4_096
# Terms of a selector tested one by one. Beyond: they are compiled together.
TERMS_APART = 16
# Values of a selectable field cached for watches. Beyond: the oldest is evicted.
FIELD_VALUES = 256
# Bytes of a body decoded on the event loop, by media type. Beyond: a thread.
DECODE_INLINE = {  # bytes of a body that are decoded in a thread from here
    "application/json": 256 * 1024,
    "application/yaml": 8 * 1024,
    "application/vnd.kubernetes.protobuf": 32 * 1024,
}
# Retries of one step of a write with one more converted object. Beyond: 500.
CONVERSIONS_OF_A_CALL = 64
# Groups of an access review passed unchanged. Beyond: groups without a binding are left out.
REVIEWED_GROUPS = 256
# Seconds of the grace period of a pod. Beyond: it is cut.
GRACE_PERIOD = 2**31 - 1
