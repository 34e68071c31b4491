"""The benchmarks: the server's cost of each kind of request, and the growth of this cost.

The cost is that of the server process.
"""
