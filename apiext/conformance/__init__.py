"""Conformance tests for any server of the Kubernetes custom-resource API.

They use only HTTP and the server's URL.
"""
