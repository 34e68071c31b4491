"""Decode, encode, patch and compare JSON documents."""
