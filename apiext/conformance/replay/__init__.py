"""Send the recorded scenarios of ``apiext/conformance/reference`` to a server, and compare its answers."""
