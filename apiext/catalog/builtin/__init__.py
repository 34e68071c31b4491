"""The resources that are there without a definition."""
