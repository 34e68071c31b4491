"""Moved to apiext.conformance.support.http_client."""

from apiext.conformance.support.http_client import *  # noqa: F403
