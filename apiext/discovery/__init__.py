"""Discovery and OpenAPI documents, as pure functions of a catalog."""
