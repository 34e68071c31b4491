"""Plug-ins that see a write before it is stored."""
