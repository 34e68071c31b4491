"""Limits of managedFields."""

# Path elements of managedFields in a cache. Beyond: the cache is cleared.
FIELD_ELEMENTS = 8_192
# Shapes of maps, by names and types of their fields, in a cache. Beyond: the oldest is evicted.
SHAPES_SEEN = 512
# Shapes of new objects whose managedFields are cached. Beyond: the oldest is evicted.
OWNERSHIPS_SEEN = 256
# Characters of the field names of a cached shape of new objects. Beyond: the shape is not cached.
OWNERSHIP_BYTES = 8_192
