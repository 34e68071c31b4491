"""The benchmarks: the cost of each request kind for the server process, and its growth."""
