"""Moved to apiext.conformance.support.definitions."""

from apiext.conformance.support.definitions import *  # noqa: F403
