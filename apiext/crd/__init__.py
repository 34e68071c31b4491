"""CustomResourceDefinitions: decode, default, validate, name, and set conditions."""
