"""Attacks on a server in little memory: it survives, answers other clients, and its refusals are precise."""
