"""KMS plug-ins on this machine: their calls, and their data keys in memory (OPS-003)."""
