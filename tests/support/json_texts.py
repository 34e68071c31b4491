"""Moved to apiext.conformance.support.json_texts."""

from apiext.conformance.support.json_texts import *  # noqa: F403
