"""Conformance tests for any server of the Kubernetes custom-resource API.

The tests use only HTTP and the server's URL.
"""
