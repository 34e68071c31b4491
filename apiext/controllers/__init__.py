"""Background reconcilers, each one function of a key."""
