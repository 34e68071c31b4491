"""Go types of built-in kinds and of definitions: one data file for each API group, and decoders built from these."""
