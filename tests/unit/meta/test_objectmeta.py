"""Object metadata: tables in cases/ and properties."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.cases import Case, case_name, load
from apiext.documents.encoding import DecodeError
from apiext.meta import limits, objectmeta, syntax


@pytest.mark.rows("MET-001", "MET-002", "MET-003")
@pytest.mark.parametrize("case", load(__file__, "metadata"), ids=case_name)
def test_coerce_and_repair(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(DecodeError) as refused:
            objectmeta.coerce(case.given)
        assert str(refused.value) == case.error
        assert objectmeta.repair(case.given) == case.repaired
        return
    assert objectmeta.coerce(case.given) == (case.then, case.unknown or [])
    assert objectmeta.repair(case.given) == case.then


def test_coerce_reports_the_path_of_errors() -> None:
    assert objectmeta.coerce({"zzz": 1}, "spec.emb.metadata")[1] == ["spec.emb.metadata.zzz"]
    text = "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
    with pytest.raises(DecodeError) as refused:
        objectmeta.coerce({"labels": {"a": 1}}, go_path="metadata.")
    assert str(refused.value) == text


@pytest.mark.rows("WRI-003", "VAL-013")
@pytest.mark.parametrize("case", load(__file__, "metadata_rules"), ids=case_name)
def test_metadata_is_validated(case: Case) -> None:
    assert [str(error) for error in objectmeta.validate(case.given, not case.cluster)] == case.errors


LENGTHS = [
    ({"name": "a" * 254}, 'metadata.name: Invalid value: "{0}": must be no more than 253 characters', "a" * 254),
    (
        {"name": "a", "labels": {"a" * 64: "b"}},
        'metadata.labels: Invalid value: "{0}": name part must be no more than 63 bytes',
        "a" * 64,
    ),
    (
        {"name": "a", "labels": {"a": "b" * 64}},
        'metadata.labels: Invalid value: "{0}": must be no more than 63 bytes',
        "b" * 64,
    ),
    (
        {"name": "a", "annotations": {"a": "b" * limits.MAX_ANNOTATIONS}},
        "metadata.annotations: Too long: may not be more than 262144 bytes",
        "",
    ),
    (
        {"name": "a", "annotations": {"a": "é" * (limits.MAX_ANNOTATIONS // 2)}},
        "metadata.annotations: Too long: may not be more than 262144 bytes",
        "",
    ),
]


@pytest.mark.rows("WRI-003")
@pytest.mark.parametrize(("metadata", "text", "value"), LENGTHS, ids=range(len(LENGTHS)))
def test_metadata_over_length_limits_is_refused(metadata: dict[str, Any], text: str, value: str) -> None:
    assert [str(error) for error in objectmeta.validate(metadata, False)] == [text.format(value)]


def test_annotations_up_to_the_limit_are_valid() -> None:
    assert objectmeta.validate({"name": "a", "annotations": {"a": "b" * (limits.MAX_ANNOTATIONS - 1)}}, False) == []


OLD = {"name": "a", "namespace": "d", "uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 2}
CHANGES = [
    ("no change", {}, {}, []),
    (
        "a changed uid is reported by the rules of all resources and of the kind",
        {"uid": "v"},
        {},
        ['metadata.uid: Invalid value: "v": field is immutable'] * 2,
    ),
    (
        "a decremented generation",
        {"generation": 1},
        {},
        ["metadata.generation: Invalid value: 1: must not be decremented"] * 2,
    ),
    (
        "deletion fields set by a client",
        {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 9},
        {},
        [
            'metadata.deletionTimestamp: Invalid value: "2020-01-01T00:00:00Z": field is immutable',
            "metadata.deletionGracePeriodSeconds: Invalid value: 9: field is immutable",
        ]
        * 2,
    ),
    (
        "a finalizer added during the deletion",
        {"finalizers": ["example.com/b", "example.com/a"]},
        {"finalizers": ["example.com/a"], "deletionTimestamp": "2020-01-01T00:00:00Z"},
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new "
            'finalizers []string{"example.com/b"}'
        ]
        * 2,
    ),
]


@pytest.mark.rows("WRI-003", "WRI-004")
@pytest.mark.parametrize(("name", "change", "before", "errors"), CHANGES, ids=[row[0] for row in CHANGES])
def test_metadata_updates_are_validated(
    name: str, change: dict[str, Any], before: dict[str, Any], errors: list[str]
) -> None:
    new = {
        **OLD,
        **({"deletionTimestamp": before["deletionTimestamp"]} if "deletionTimestamp" in before else {}),
        **change,
    }
    assert [str(error) for error in objectmeta.validate_update(new, {**OLD, **before}, True)] == errors


@pytest.mark.rows("WRI-003")
def test_invalid_label_of_an_update_is_reported_three_times() -> None:
    found = objectmeta.validate_update({**OLD, "labels": {"a b": "c"}}, OLD, True)
    assert [error.field for error in found] == ["metadata.labels"] * 3


@pytest.mark.rows("VAL-015")
def test_warnings_about_new_finalizers() -> None:
    new = {"finalizers": ["foo", "foo.bar", "a.b/c", "orphan", "kubernetes", "old"]}
    ending = "to avoid accidental conflicts with other finalizer writers"
    assert objectmeta.warnings(new, {"finalizers": ["old"]}) == [
        f'metadata.finalizers: "foo": prefer a domain-qualified finalizer name {ending}',
        f'metadata.finalizers: "foo.bar": prefer a domain-qualified finalizer name including a path (/) {ending}',
    ]
    assert objectmeta.warnings({}, None) == []


NAMES = [
    (syntax.dns1123_label, "a-1", True),
    (syntax.dns1123_label, "a" * 64, False),
    (syntax.dns1123_label, "-a", False),
    (syntax.dns1123_subdomain, "a.b-c.d", True),
    (syntax.dns1123_subdomain, "a..b", False),
    (syntax.dns1123_subdomain, "a\n", False),
    (syntax.dns1035_label, "a1", True),
    (syntax.dns1035_label, "1a", False),
    (syntax.qualified_name, "a.b/C_d", True),
    (syntax.qualified_name, "A.B/c", False),
    (syntax.label_value, "", True),
    (syntax.label_value, "é", False),
    (syntax.path_segment, "A_b:c", True),
    (syntax.path_segment, "..", False),
    (syntax.path_segment, "a/b", False),
]


@pytest.mark.parametrize(("check", "text", "right"), NAMES)
def test_name_syntax_is_validated(check: Any, text: str, right: bool) -> None:
    assert (check(text) == []) == right


@given(st.text("aA1-_.é/ ", max_size=6))
def test_plain_text_is_a_valid_name_and_label_value(text: str) -> None:
    if syntax.is_plain(text):
        assert syntax.qualified_name(text) == syntax.label_value(text) == []


def test_errors_of_unprintable_managers_are_limited() -> None:
    entry = {"manager": "\1" * 100, "operation": "Update", "fieldsType": "FieldsV1"}
    found = objectmeta.validate({"name": "a", "managedFields": [entry] * 100}, False)
    assert limits.MAX_FIELD_ERRORS <= len(found) < limits.MAX_FIELD_ERRORS + 100


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "2020-01-01T00:00:00Z", "x.io/y"])
ANY = st.recursive(
    SCALARS,
    lambda below: (
        st.lists(below, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "name", "uid", "time", "controller"]), below, max_size=3)
    ),
)
FIELDS = st.sampled_from(
    [
        "name",
        "labels",
        "generation",
        "creationTimestamp",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "foo",
        "uid",
        "deletionGracePeriodSeconds",
    ]
)


@pytest.mark.parametrize("name", ["name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"])
@pytest.mark.parametrize("text", ["", "a", "2020-01-01T00:00:00Z", "é/"])
def test_coerce_keeps_strings_and_drops_empty_ones(name: str, text: str) -> None:
    assert objectmeta.coerce({name: text}) == ({name: text} if text else {}, [])


def test_coerce_keeps_empty_fields_of_owner_references() -> None:
    owner = {"apiVersion": "", "kind": "Widget", "name": "", "uid": "u"}
    assert objectmeta.coerce({"ownerReferences": [owner]}) == ({"ownerReferences": [owner]}, [])


@given(st.dictionaries(FIELDS, ANY))
def test_coerce_and_repair_are_idempotent(metadata: dict[str, Any]) -> None:
    repaired = objectmeta.repair(metadata)
    assert objectmeta.coerce(repaired) == (repaired, [])
    assert objectmeta.repair(repaired) == repaired
    try:
        coerced, _ = objectmeta.coerce(metadata)
    except DecodeError:
        return
    assert coerced == repaired
    objectmeta.validate(coerced, False)
    objectmeta.validate_update(coerced, repaired, False)


@pytest.mark.parametrize(("check", "limit"), [(syntax.config_key, 253), (syntax.port_name, 15)])
def test_lengths_of_keys_and_port_names_are_counted_in_bytes(check: Callable[[str], list[str]], limit: int) -> None:
    error = f"must be no more than {limit} characters"
    assert error not in check("é" * (limit // 2))
    assert error in check("é" * (limit // 2 + 1))
