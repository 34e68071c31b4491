"""Send recorded scenarios to a server, and compare its answers.

The scenarios are in ``apiext/conformance/reference``.
"""
