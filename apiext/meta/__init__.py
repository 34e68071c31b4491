"""Parts of the API that all objects share: names, metadata, selectors, options, Status."""
