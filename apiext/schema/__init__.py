"""Validate, default and prune objects by structural schemas, and validate the schemas of definitions."""
