"""What conformance tests share: a client, definitions to test with, webhooks, waiting."""
