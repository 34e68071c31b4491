"""A store with etcd's semantics in the process of the server, in a SQLite file or in memory.

The etcd client uses it through the protocol Transport.
"""
