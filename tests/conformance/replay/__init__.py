"""Plays the recorded scenarios of ``tests/conformance/reference`` against a server and compares the answers."""
