"""Moved to apiext.conformance.support.events."""

from apiext.conformance.support.events import *  # noqa: F403
