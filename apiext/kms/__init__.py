"""Keys that a key management plug-in on this machine keeps: asking it, and what is known of its keys (OPS-003)."""
