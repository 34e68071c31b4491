"""Tests of apiext.audit."""
