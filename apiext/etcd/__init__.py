"""An asyncio etcd client."""
