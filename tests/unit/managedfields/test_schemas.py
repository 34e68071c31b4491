"""Merge types made from schemas: what is a scalar, and which scalars are told apart."""

import pytest

from apiext.managedfields.schemas import merge_type


@pytest.mark.rows("SSA-010")
def test_a_text_with_a_format_is_any_scalar() -> None:
    # upstream: texts of any other format are not told from other scalars
    properties = {
        "plain": {"type": "string"},
        "raw": {"type": "string", "format": "byte"},
        "day": {"type": "string", "format": "date"},
    }
    made = merge_type({"type": "object", "properties": properties})
    assert made.map is not None
    fields = made.map.fields
    assert fields["plain"] == fields["raw"]
    assert fields["plain"] != fields["day"]
