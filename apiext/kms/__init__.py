"""KMS plug-ins on this machine: their calls, and the data keys that are known (OPS-003)."""
