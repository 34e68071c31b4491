"""Tests of apiext.embedded."""
