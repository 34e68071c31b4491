"""Objects at revisions: keys, cache, watch fan-out, read plans."""
