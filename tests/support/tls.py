"""Moved to apiext.conformance.support.tls."""

from apiext.conformance.support.tls import *  # noqa: F403
