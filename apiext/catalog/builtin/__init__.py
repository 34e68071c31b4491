"""Built-in resources, served by the same code as custom ones."""
