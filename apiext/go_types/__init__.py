"""Go types of built-in kinds and of definitions: data files, and decoders for these types."""
