"""The words every Kubernetes object shares: names, metadata, selectors, Status."""
