"""Go types of built-in kinds and of definitions: a data file for each API group, and the decoders of its types."""
