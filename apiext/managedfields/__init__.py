"""Track field ownership: paths, sets, merge types, updates and applies."""
