"""Limits of discovery."""

# Parts of OpenAPI v3 documents that versions share, in each of four caches. Beyond: the least recently used part is
# evicted.
DOCUMENTS_KEPT = 64
