"""Documents of one resource, from version to version."""
