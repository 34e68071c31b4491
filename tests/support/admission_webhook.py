"""Moved to apiext.conformance.support.admission_webhook."""

from apiext.conformance.support.admission_webhook import *  # noqa: F403
