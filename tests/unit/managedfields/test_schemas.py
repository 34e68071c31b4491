"""Merge types from schemas: scalars and their distinctions."""

from typing import Any

import pytest

from apiext.managedfields.schemas import PRESERVE, merge_type
from apiext.managedfields.types import DEDUCED


@pytest.mark.rows("SSA-010")
def test_string_with_another_format_merges_as_any_scalar() -> None:
    # upstream: strings of any other format merge like untyped scalars
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


@pytest.mark.rows("SSA-010")
@pytest.mark.parametrize(("schema", "takes"), [({}, False), ({"properties": {}}, False), ({PRESERVE: True}, True)])
def test_object_without_properties_accepts_no_fields(schema: dict[str, Any], takes: bool) -> None:
    # upstream: the root always has ``properties``, so types of unknown fields are not deduced
    made = merge_type({"type": "object", **schema})
    assert made.map is not None
    assert set(made.map.fields) == {"apiVersion", "kind", "metadata"}
    assert (made.map.element is DEDUCED) is takes
