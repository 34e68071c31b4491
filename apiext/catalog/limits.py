"""Limits of served versions and built-in kinds."""

# Nesting of a stored or converted object. Beyond: reads fail with a 500, since orjson cannot encode the object.
MAX_STORED_DEPTH = 254
# Nesting of JSON in a Secret of type dockercfg or dockerconfigjson. Beyond: 422. Upstream: maxNestingDepth.
MAX_TEXT_DEPTH = 10_000
# Stored objects with a cached offset at which reads insert the resourceVersion, for each version (8 MB). Beyond: the
# oldest is evicted.
SPLICES = 65_536
# Replaced or deleted objects in the cache of offsets at which reads insert the resourceVersion, for each version.
# Beyond: the oldest is evicted.
SPLICES_REPLACED = 1_024
# Bytes of converted objects in the cache of all definitions. Beyond: the oldest is evicted.
CONVERTED_BYTES = 64 * 1024 * 1024
# Names of groups, resources and kinds in a cache. Beyond: the oldest is evicted.
NAMES_SEEN = 4096
# Bytes of the data of a Secret or ConfigMap. Beyond: 422. Upstream: MaxSecretSize.
MAX_SECRET = 2**20
# Bytes of an event's action, reason and reporting instance. Beyond: 422.
MAX_EVENT_WORD = 128
# Bytes of an event's note. Beyond: 422.
MAX_EVENT_NOTE = 1024
