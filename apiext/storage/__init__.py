"""The store of objects: keys, cache, encryption, and delivery of changes to watches."""
