"""Scheduling of work on the event loop and in threads."""
