"""The Kubernetes custom-resource API without Kubernetes."""

__version__ = "0.1.0"
