"""The audit log: policy, events, files and webhook (AUD-001, AUD-002)."""
