"""An asyncio etcd client, and the private etcd child process."""
