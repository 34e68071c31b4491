"""Moved to apiext.conformance.support.admission."""

from apiext.conformance.support.admission import *  # noqa: F403
