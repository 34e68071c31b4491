"""Shared parts of conformance tests: a client, definitions, webhooks, waiting."""
