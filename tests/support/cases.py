"""Moved to apiext.conformance.support.cases."""

from apiext.conformance.support.cases import *  # noqa: F403
