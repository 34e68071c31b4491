"""Limits of discovery."""

# Parts of OpenAPI documents that versions share, in a cache. Beyond: the oldest is evicted.
DOCUMENTS_KEPT = 64
