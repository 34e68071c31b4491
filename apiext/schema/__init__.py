"""Validate, default and prune objects by structural schemas; validate definitions' schemas."""
