"""Tables of the schema engine: one YAML file per topic, one row per case."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from apiext.cel import regexes
from apiext.conformance.support.cases import Case, case_name, load
from apiext.documents.document import clone
from apiext.schema import field_paths, formats, patterns
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors, format_warnings, ratchets
from apiext.schema.options import Options, has_defaults, has_extensions
from apiext.schema.parse import parse
from apiext.schema.work_budget import BudgetExhausted, within_loop_budget


def table(name: str) -> Any:
    """Return a mark that parametrizes a test with a table."""
    return pytest.mark.parametrize("case", load(__file__, name), ids=case_name)


def _value_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


@pytest.mark.rows("PRU-001", "PRU-002", "PRU-003", "PRU-004", "PRU-005", "PRU-006", "PRU-008")
@table("prune")
def test_prune_removes_unknown_fields(case: Case) -> None:
    document = clone(case.given)
    compiled = compile_schema(case.schema, preserve_unknown_fields=bool(case.preserve))
    assert compiled.prune(document) == (case.unknown or [])
    assert document == case.then


@pytest.mark.rows("NUL-001", "NUL-002", "NUL-003", "NUL-004", "NUL-008", "DEF-005")
@table("defaults")
def test_normalize_sets_defaults(case: Case) -> None:
    document = clone(case.given)
    compile_schema(case.schema).normalize(document)
    assert document == case.then
    stored = clone(case.given)
    assert compile_schema(case.schema).from_storage(stored) == (case.given != case.then)
    assert stored == (case.stored or case.then)


def test_default_value_is_not_shared_between_objects() -> None:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"b": []}}
    shape = compile_schema({"type": "object", "properties": {"a": free}})
    documents: list[dict[str, Any]] = [{}, {}]
    for document in documents:
        shape.normalize(document)
        document["a"]["b"].append(1)
    assert documents == [{"a": {"b": [1]}}] * 2


@pytest.mark.rows("MET-004", "MET-005")
@table("embedded")
def test_embedded_resources(case: Case) -> None:
    schema = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    compiled = compile_schema({"type": "object", "properties": {"e": schema}})
    document = {"e": clone(case.given)}
    if case.raises:
        with pytest.raises(ValueError) as raised:  # noqa: PT011 (the text is compared)
            compiled.normalize(document)
        assert str(raised.value) == case.raises
        assert compiled.from_storage(document)
        return
    assert compiled.normalize(document) == (case.unknown or [])
    if case.then is not None:
        assert document["e"] == case.then
    for old in (None, clone(document)):
        texts = [str(error) for error in compiled.validate(document, old)]
        if case.contains:
            assert any(text.startswith(case.contains) for text in texts)
        elif old is None or isinstance(case.given, dict):
            assert texts == (case.errors or [])


@pytest.mark.rows("MET-004")
def test_embedded_resources_in_maps_and_lists_are_validated() -> None:
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    fields = {"m": {"type": "object", "additionalProperties": inner}, "l": {"type": "array", "items": inner}}
    compiled = compile_schema({"type": "object", "properties": fields})
    for document, path in (({"m": {"q": {"kind": 5}}}, "m[q]"), ({"l": [{}, {"kind": 5}]}, "l[1]")):
        with pytest.raises(ValueError, match="must be a string") as raised:
            compiled.normalize(clone(document))
        assert str(raised.value) == f"{path}.kind: Invalid value: 5: must be a string"
    document = {"m": {"q": {"kind": "P", "metadata": {"zz": 1}}}, "l": [{"apiVersion": "v1"}]}
    assert compiled.normalize(document) == ["m[q].metadata.zz"]
    texts = [str(error) for error in compiled.validate(document, None)]
    assert texts == ["m[q].apiVersion: Required value", "l[0].kind: Required value"]


@pytest.mark.rows("VAL-001", "VAL-002", "VAL-003", "VAL-004", "VAL-005", "VAL-007", "VAL-008", "VAL-009", "VAL-010")
@pytest.mark.rows("VAL-011", "ERR-07", "ERR-09")
@table("values")
def test_values_are_validated(case: Case) -> None:
    document = {"a": clone(case.given)}
    texts = [str(error) for error in compile_schema(_value_schema(case.schema)).validate(document, None)]
    assert sorted(texts) == sorted(case.errors or [])
    assert document == {"a": case.given}


@pytest.mark.rows("LST-001", "LST-002")
@table("list_types")
def test_list_types_are_validated(case: Case) -> None:
    errors = compile_schema(_value_schema(case.schema)).validate({"a": case.given}, None)
    assert [str(error) for error in errors] == (case.errors or [])


@pytest.mark.rows("RAT-001", "RAT-002", "RAT-004", "RAT-005", "LST-003", "VAL-003")
@table("ratcheting")
def test_ratcheting_accepts_unchanged_invalid_values(case: Case) -> None:
    compiled = compile_schema({"type": "object", **case.schema})
    judge = compiled.validate_status if case.status else compiled.validate
    assert sorted(str(error) for error in judge(case.new, case.old)) == sorted(case.errors or [])


@pytest.mark.rows("VAL-006", "VAL-005")
@table("formats")
def test_formats_accept_valid_strings_only(case: Case) -> None:
    check = formats.string_check(case.name)
    assert check is not None
    assert [text for text in case.good if not check(text)] == []
    assert [text for text in case.bad if check(text)] == []


@pytest.mark.rows("STR-010")
@table("patterns")
def test_patterns_are_accepted_or_refused(case: Case) -> None:
    expected = f"error parsing regexp: {case.refusal}" if case.refusal else ""
    assert patterns.refusal(case.pattern) == expected


@pytest.mark.parametrize("pattern", ["[[:a" * 60_000, r"\pL" * 60_000, "a?" * 10_000, "a{0,1000}" * 6])
def test_expensive_patterns_are_refused_quickly(pattern: str) -> None:
    began = time.process_time()
    assert patterns.refusal(pattern) == "error parsing regexp: expression too large"
    assert time.process_time() - began < 1


@pytest.mark.parametrize("pattern", ["a?" * 3_000, "a{0,900}" * 5, "(" + "a" * 9_000])
def test_large_patterns_compile_once_and_off_the_event_loop(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def compiled(pattern: str, really: Callable[[str], Any] = regexes.compiled) -> Any:
        made.append(pattern)
        return really(pattern)

    monkeypatch.setattr(regexes, "compiled", compiled)
    with pytest.raises(BudgetExhausted):
        within_loop_budget(patterns.refusal, pattern)
    assert made == []
    told = [patterns.refusal(pattern) for _ in range(2)]
    for _ in range(2):
        try:
            regexes.program(pattern)
        except regexes.PatternError as wrong:
            told.append(str(wrong))
    assert made == [pattern] * 2, "by schemas and by expressions"
    assert within_loop_budget(patterns.refusal, pattern) == told[0]
    assert told == [told[0]] * (4 if told[0] else 2)


@pytest.mark.rows("CEL-018", "CRD-034", "SCH-013")
@table("field_paths")
def test_field_paths(case: Case) -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    maps = {"type": "object", "additionalProperties": {"type": "string"}}
    lists = {"type": "array", "items": {"type": "string"}}
    node = parse({"type": "object", "properties": {"a": inner, "m": maps, "l": lists, "c.d": inner}})
    node_of = {"l": node} if case.path.startswith(".l") else {}
    if case.reason is None:
        assert field_paths.follow(case.path, node)[0] == case.then
        return
    with pytest.raises(field_paths.PathError) as raised:
        field_paths.follow(case.path, node_of.get("l", node), arrays=case.arrays is not False)
    assert str(raised.value) == case.reason


@pytest.mark.rows(*[f"SCH-{n:03}" for n in range(1, 15)], *[f"STR-{n:03}" for n in range(1, 13)])
@pytest.mark.rows("DEF-001", "DEF-002", "DEF-003")
@table("definitions")
def test_definitions_are_validated(case: Case) -> None:
    options = Options(structural=case.structural is not False, pruned_defaults=case.pruned_defaults is not False)
    texts = [str(error) for error in definition_errors(case.schema, "S", options)]
    assert sorted(texts) == sorted(case.errors or [])


@pytest.mark.rows("UPD-002", "STR-001")
@table("ratchets")
def test_ratchets_disable_checks_that_old_schema_fails(case: Case) -> None:
    options = ratchets([case.schema, None])
    assert [name for name in Options.__slots__ if getattr(options, name) is False] == case.without


@pytest.mark.rows("UPD-009")
def test_format_warnings_name_new_unrecognized_formats() -> None:
    new = {"type": "object", "properties": {"a": {"type": "string", "format": "zz"}, "b": {"type": "integer"}}}
    more = {"type": "object", "properties": {"b": {"type": "integer", "format": "float"}, "c": {"format": "date"}}}
    assert format_warnings([new, more, None]) == ['unrecognized format "zz"', 'unrecognized format "float"']
    assert format_warnings([new, more], [new]) == ['unrecognized format "float"']
    odd = {"type": "string", "format": 'a"\\\n\u2028\xa0é'}
    assert format_warnings([odd]) == [r'unrecognized format "a\"\\\n\u2028\u00a0é"']


@pytest.mark.rows("STR-001", "CRD-028")
def test_defaults_and_extensions_are_detected_in_schemas() -> None:
    assert has_defaults({"anyOf": [{"items": {"default": 1}}]})
    assert not has_defaults({"properties": {"a": {"default": None}}})
    assert has_extensions({"not": {"x-kubernetes-preserve-unknown-fields": False}})
    assert not has_extensions({"type": "object", "x-kubernetes-map-type": "atomic"})
