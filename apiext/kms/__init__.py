"""KMS plug-ins on this machine: the calls of plug-ins, and decrypted data keys in memory (OPS-003)."""
