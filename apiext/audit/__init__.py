"""The audit log: which requests are told of, what an event says, and where events go (AUD-001, AUD-002)."""
