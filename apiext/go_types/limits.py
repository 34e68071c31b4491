"""Limits of typed objects."""

# Unknown fields that strict validation lists. Beyond: the rest is left out.
MAX_UNKNOWN = 1_000
