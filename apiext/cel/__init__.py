"""A CEL engine with Kubernetes' dialect, costs and messages."""
