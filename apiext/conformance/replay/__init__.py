"""Play the recorded scenarios of ``apiext/conformance/reference`` against a server, and compare the answers."""
