"""The operating system: files, sockets, TLS certificates, memory that workers share, and how libraries are imported."""
