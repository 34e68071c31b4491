"""Moved to apiext.conformance.support.waiting."""

from apiext.conformance.support.waiting import *  # noqa: F403
