"""Attacks on a server with little memory.

The server survives and answers other clients, and its refusals are precise.
"""
