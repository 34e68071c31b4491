"""The etcd client and the store against real etcds."""
