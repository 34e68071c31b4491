"""Limits of requests on objects."""

# Seconds that a watch from a future revision waits until the store has this revision. Beyond: 410, and the client lists
# again.
AHEAD_WAIT = 1.0
# Seconds of one write of an object while other writes wait (doubled after another conflict). Beyond: the next begins.
WRITER_TURN = 1.0
# Names tried for generateName. Beyond: 409. Upstream: maxNameGenerationCreateAttempts.
CREATE_NAME_ATTEMPTS = 8
# Seconds in which an allocated service address is used again only as the last choice. Beyond: an address that no
# service has is free again.
ADDRESS_GIVEN = 5.0
# Addresses of a network that the server allocates by itself. Beyond: a service must request the address.
ADDRESSES_OF_A_FAMILY = 1 << 20
# Recently allocated addresses and ports, used again only as the last choice. Beyond: the oldest is free again.
ADDRESSES_GIVEN = 4096
# Random attempts to find a free address or port. Beyond: all are searched in order.
ADDRESS_TRIES = 64
# Characters of selectors parsed on the event loop. Beyond: a thread parses them.
SELECTOR_INLINE = 4_096
# Terms of a selector tested one by one. Beyond: they are compiled together.
TERMS_APART = 16
# Values of a selectable field in a cache. Beyond: the oldest is evicted.
FIELD_VALUES = 256
# Bytes of a body decoded on the event loop, by media type. Beyond: a thread decodes it.
DECODE_INLINE = {
    "application/json": 256 * 1024,
    "application/yaml": 8 * 1024,
    "application/vnd.kubernetes.protobuf": 32 * 1024,
}
# Retries of one step of a write, each after the conversion of one more object. Beyond: 500.
CONVERSIONS_OF_A_CALL = 64
# Groups of an access review that the authorizer gets unchanged. Beyond: it gets only system:masters and groups with a
# binding.
REVIEWED_GROUPS = 256
# Seconds of the grace period of a pod. Beyond: it is reduced to this value.
GRACE_PERIOD = 2**31 - 1
