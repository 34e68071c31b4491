"""Plays the recorded scenarios of ``apiext/conformance/reference`` against a server and compares the answers."""
