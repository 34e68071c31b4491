"""The benchmarks: the cost of each kind of request for the server process, and the growth of this cost."""
