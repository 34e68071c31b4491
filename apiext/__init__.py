"""The Kubernetes custom-resource API without Kubernetes."""
