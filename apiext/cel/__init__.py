"""A CEL engine with Kubernetes' libraries, costs and error texts."""
