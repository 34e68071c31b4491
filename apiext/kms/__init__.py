"""KMS plug-ins on this machine: the calls to plug-ins, and decrypted data keys in memory.

See OPS-003.
"""
