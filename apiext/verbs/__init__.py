"""The API verbs: reads and writes of objects, with admission, catalog and storage."""
