"""Texts of upstream's internal types of versions, compared with Go's output."""

from __future__ import annotations

import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.crd.internal_text import versions_text
from apiext.schema.internal_text import SCHEMA_FIELDS, items_text, schema_text

CASES = load(__file__, "internal_text")
ALL, NOTHING = CASES[0], CASES[1]


@pytest.mark.rows("DIS-04")
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_version_prints_as_in_go(case: Case) -> None:
    assert versions_text([case.version]) == f"[{case.text}]"


@pytest.mark.rows("DIS-04")
def test_version_lists_print_as_in_go() -> None:
    assert (versions_text(None), versions_text([])) == ("null", "[]")
    assert versions_text([ALL.version, NOTHING.version]) == f"[{ALL.text},{NOTHING.text}]"


@pytest.mark.rows("DIS-04")
def test_schema_and_items_print_as_within_version() -> None:
    schema = ALL.version["schema"]["openAPIV3Schema"]
    assert f'"OpenAPIV3Schema":{schema_text(schema)}' in ALL.text
    assert f'"Items":{items_text(schema["items"])}' in ALL.text
    assert items_text(None) == "null"
    assert [name for _, name in SCHEMA_FIELDS] == list(schema)
