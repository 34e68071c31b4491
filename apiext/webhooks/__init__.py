"""The client that calls out to webhooks."""
