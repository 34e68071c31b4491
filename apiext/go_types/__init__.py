"""The Go types of built-in kinds and of definitions: a data file for each group, and decoders made from it."""
