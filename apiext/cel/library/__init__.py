"""CEL functions, one row for each overload."""
