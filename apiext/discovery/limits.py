"""Limits of discovery."""

# Cached parts of OpenAPI documents that versions share. Beyond: the least recently used part is evicted.
DOCUMENTS_KEPT = 64
