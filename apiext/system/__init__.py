"""The operating system: files, sockets, TLS certificates, and memory that workers share."""
