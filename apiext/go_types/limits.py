"""Limits of typed objects."""

# Unknown fields that strict validation lists. Beyond: the error omits further fields.
MAX_UNKNOWN = 1_000
