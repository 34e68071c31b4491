"""The operating system: files, sockets, TLS certificates, shared memory, library imports."""
