"""The benchmark: what each kind of request costs the server process, and how that grows."""
