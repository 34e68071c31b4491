"""Go's types of the built-in kinds and of definitions: one data file for each group, and what is read from it."""
