"""Conversion of objects to another version by a webhook."""
