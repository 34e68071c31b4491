"""Everything that knows HTTP: listener, filters, routes, representations, streams."""
