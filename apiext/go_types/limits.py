"""Limits of typed objects."""

# Unknown fields of an object in an error or in warnings. Beyond: further unknown fields are omitted.
MAX_UNKNOWN = 1_000
