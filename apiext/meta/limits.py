"""Limits of metadata and request paths."""

# Bytes of all annotations of an object. Beyond: 422. Upstream: TotalAnnotationSizeLimitB.
MAX_ANNOTATIONS = 262_144
# Bytes of a request line or of one header, and characters of a selector. Beyond: 431; for a selector, 400.
MAX_LINE = 65_536
# Entries of each of three caches: decoded namespaces for admission, guards of namespaces, and validated names of
# namespaces. Beyond: the first cache is cleared; the other two evict the least recently used entry.
NAMESPACES_SEEN = 256
# Causes (field errors) in one Status. Beyond: the first further cause is still shown, and the rest is left out.
MAX_FIELD_ERRORS = 1_000
# Characters of the causes in one Status. Beyond: the first further cause is still shown if all causes together have at
# most twice this number, and the rest is left out.
MAX_FIELD_ERROR_BYTES = 1024 * 1024
# Entries of each of two caches: parsed field selectors, and names of selected labels. Beyond: the least recently used
# entry is evicted.
SELECTORS_SEEN = 64
# Bytes of a field manager's name. Beyond: 422. Upstream: FieldManagerMaxLength.
MAX_MANAGER = 128
# Entries in each cache of times: parsed times, normalized times, printed durations. Beyond: the least recently used is
# evicted.
TIMES_SEEN = 1024
# Characters of a time in the caches of parsed and normalized times. Beyond: the time is not cached.
TIME_TEXT = 40
