"""Limits of served versions and built-in kinds."""

# Nesting of a stored or converted object. Beyond: reads fail with a 500, since orjson cannot encode the object.
MAX_STORED_DEPTH = 254
# Nesting of JSON in a Secret of type dockercfg or dockerconfigjson. Beyond: 422. Upstream: maxNestingDepth.
MAX_TEXT_DEPTH = 10_000
# Stored objects with a cached offset, in each version of a resource (8 MB). At this offset, reads insert the
# resourceVersion. Beyond: the oldest is evicted.
SPLICES = 65_536
# Replaced or deleted objects with a cached offset at which reads insert the resourceVersion, in each version of a
# resource. Beyond: the oldest is evicted.
SPLICES_REPLACED = 1_024
# Bytes of converted objects in the cache that all definitions share. Beyond: the oldest is evicted.
CONVERTED_BYTES = 64 * 1024 * 1024
# Entries of one cache whose keys contain names of groups, resources or kinds. Beyond: the oldest entry is evicted, or
# the cache is cleared.
NAMES_SEEN = 4096
# Bytes of the data of a Secret or ConfigMap. Beyond: 422. Upstream: MaxSecretSize.
MAX_SECRET = 2**20
# Bytes of each of these fields of an event: action, reason, reporting instance. Beyond: 422.
MAX_EVENT_WORD = 128
# Bytes of an event's note. Beyond: 422.
MAX_EVENT_NOTE = 1024
