"""Conformance tests for any server of the Kubernetes custom-resource API: HTTP only, by a URL alone."""
