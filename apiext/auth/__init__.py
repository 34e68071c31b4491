"""Authentication and authorization, certificates and tokens."""
