"""The schema engine: structural schemas and what is compiled from them."""
