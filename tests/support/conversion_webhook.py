"""Moved to apiext.conformance.support.conversion_webhook."""

from apiext.conformance.support.conversion_webhook import *  # noqa: F403
