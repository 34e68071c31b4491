"""Decode FieldsV1: cached elements give the same result (SSA-002)."""

import pytest

from apiext.managedfields import fieldsv1


def test_cached_elements_are_still_validated() -> None:
    known = {"f:a": {".": {}, "f:b": {}, "f:c": {}}}
    assert fieldsv1.decode(known) == known
    assert fieldsv1.decode(known)["f:a"] is known["f:a"]  # not parsed again
    assert fieldsv1.decode({"f:a": {".": {}}}) == {"f:a": {}}
    assert fieldsv1.decode({".": {}, "f:b": {}}) == {"f:b": {}}
    assert fieldsv1.decode({"f:a": {"f:b": {"f:c": {"f:b": {}}}, "f:c": {}}}) == {
        "f:a": {"f:b": {"f:c": {"f:b": {}}}, "f:c": {}}
    }
    for wrong in ([], 0, "", False):
        with pytest.raises(fieldsv1.FieldsError, match="must be an object"):
            fieldsv1.decode({"f:a": {"f:b": {}, "f:c": wrong}})
    with pytest.raises(fieldsv1.FieldsError):
        fieldsv1.decode({"f:a": {"f:b": {}, "xc": {}}})


def test_elements_of_unknown_kind_are_dropped() -> None:
    # upstream: a future version may have a meaning for them
    assert fieldsv1.decode({"f:a": {"f:b": {}, "x:c": {"f:d": {}}}, "y:": 5}) == {"f:a": {"f:b": {}}}
    assert fieldsv1.decode({"f:a": {"x:c": {}}, "f:b": None}) == {"f:a": {}, "f:b": {}}
    assert fieldsv1.decode({"x:y": {}}) == {}


def test_elements_are_normalized_when_decoded() -> None:
    assert fieldsv1.decode({"f:a": {"i:007": {}, "v:1e2": {}, 'k:{"b":1.0,"a":"x"}': {}}}) == {
        "f:a": {"i:7": {}, "v:100": {}, 'k:{"a":"x","b":1}': {}}
    }
