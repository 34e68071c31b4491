"""Limits of discovery."""

# Cached parts of OpenAPI documents that versions share. Beyond: the oldest is evicted.
DOCUMENTS_KEPT = 64
