"""Limits of managedFields."""

# Path elements of managedFields in a cache. Beyond: new elements are not cached.
FIELD_ELEMENTS = 8_192
# Shapes of maps (names and classes of their fields) in a cache. Beyond: the least recently used is evicted.
SHAPES_SEEN = 512
# Shapes of new objects whose managedFields are cached. Beyond: the cache is cleared.
OWNERSHIPS_SEEN = 256
# Characters of the Python repr of a cached shape (names and classes of all fields of a new object). Beyond: the shape
# is not cached.
OWNERSHIP_CHARACTERS = 8_192
