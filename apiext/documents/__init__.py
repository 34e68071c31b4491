"""JSON documents: decoding, encoding, patches, paths."""
