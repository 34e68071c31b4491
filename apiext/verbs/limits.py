"""Limits of requests on objects."""

# Seconds that a watch from a future revision waits until the store has this revision. Beyond: 410, and the client lists
# again.
AHEAD_WAIT = 1.0
# Seconds of a writer's turn while other writers of the object wait; each further turn of a writer is twice as long.
# Beyond: the next writer gets its turn, and this writer continues without one.
WRITER_TURN = 1.0
# Names tried for generateName. Beyond: 409. Upstream: maxNameGenerationCreateAttempts.
CREATE_NAME_ATTEMPTS = 8
# Seconds after the allocation of an address or port of a service, in which the server allocates it again only if no
# other is free. Beyond: it is free again, unless a service has it.
ADDRESS_GIVEN = 5.0
# Addresses, from the start of a network, among which the server chooses. Beyond: it allocates an address only if the
# service requests it.
ADDRESSES_OF_A_FAMILY = 1 << 20
# Recently allocated addresses and ports that the server remembers for ADDRESS_GIVEN. Beyond: the oldest is free again.
ADDRESSES_GIVEN = 4096
# Random attempts to find a free address or port. Beyond: the server tries all of them in order.
ADDRESS_TRIES = 64
# Characters of selectors parsed on the event loop. Beyond: a thread parses them.
SELECTOR_INLINE = 4_096
# Terms of a selector that each object is tested with one by one. Beyond: terms of the same label or field are merged.
TERMS_APART = 16
# Cached values of one selectable field, for the last objects read. Beyond: the oldest value is evicted.
FIELD_VALUES = 256
# Bytes of a body decoded on the event loop, by media type. Beyond: a thread decodes it.
DECODE_INLINE = {
    "application/json": 256 * 1024,
    "application/yaml": 8 * 1024,
    "application/vnd.kubernetes.protobuf": 32 * 1024,
}
# Retries of one step of a request, each after a webhook has converted one more object. Beyond: 500.
CONVERSIONS_OF_A_CALL = 64
# Groups of an access review that the authorizer gets unchanged. Beyond: it gets only system:masters and groups with a
# binding.
REVIEWED_GROUPS = 256
# Seconds of the grace period of a pod. Beyond: it is reduced to this value.
GRACE_PERIOD = 2**31 - 1
