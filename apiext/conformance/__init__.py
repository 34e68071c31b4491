"""Conformance tests for any server of the Kubernetes custom-resource API: over HTTP, given only a URL."""
