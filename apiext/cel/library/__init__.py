"""CEL functions, one row per overload."""
