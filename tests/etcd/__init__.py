"""The etcd client, the private child and the store against real etcds."""
