"""A store with etcd's semantics in the server's own process, on SQLite or in memory, behind a connection's port."""
