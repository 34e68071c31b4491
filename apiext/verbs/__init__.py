"""The verbs: decide on writes, and read, with admission, catalog and storage."""
