"""Attacks on a server in little memory: it is not killed, other clients are answered, refusals are precise."""
