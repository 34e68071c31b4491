"""The tables of built-in kinds agree, are loaded only when read, and can be extended.

The tables agree with each other, and another table can extend them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.builtin import functions
from apiext.catalog.builtin.functions import function
from apiext.catalog.builtin.kinds import kinds, resource
from apiext.catalog.builtin.rules import compile_rules
from apiext.catalog.merge_types import table_type
from apiext.catalog.served import ServedVersion
from apiext.catalog.stored import Unreadable
from apiext.documents.errors import DecodeError
from apiext.go_types.compiling import row_of
from apiext.go_types.rows import Published, Row, Status, Writes, rows
from apiext.go_types.scalars import IntOrText, Quantity
from apiext.go_types.tables import SCALARS, Types, split, types_of
from apiext.go_types.typed import Decoding, Struct
from apiext.http import protobuf
from apiext.http.messages import json_fields
from apiext.managedfields.types import Type
from apiext.verbs.pods import ACTIONS
from apiext.verbs.reviews import REVIEWS

ROOT = Path(__file__).parents[3]
ROWS = rows()
EACH = pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.api_version}.{row.kind}") for row in ROWS])
VERSIONS: dict[tuple[str, str], ServedVersion] = {
    (version.names.api_version, version.names.kind): version
    for one in kinds(lambda _, on: True)
    for version in one.versions.values()
}


def version_of(row: Row) -> ServedVersion:
    return VERSIONS[row.api_version, row.kind]


def _named_functions(row: Row) -> Iterator[tuple[str, str]]:
    """Yield (key in YAML, function) of each function of apiext/catalog/builtin that a row names."""
    main, status, checks, storage = row.writes, row.status, row.validation, row.storage
    yield from [("prepare", main.prepare), ("signed", main.signed), ("defaults", main.defaults), ("named", main.named)]
    yield from [("prepare_status", status.prepare), ("stamp_status", status.stamp)]
    yield from [("validate", checks.validate), ("warnings", checks.warnings)]
    yield from [("validate_status", status.validate), ("warnings_status", status.warnings)]
    yield from [("stored", storage.form), ("shown", storage.shown), ("restored", storage.restored)]
    yield from (("columns", one.get("cell", "")) for one in row.published.columns if not isinstance(one, str))
    for one in row.subresources:
        yield from ((f"subresources: {key}", one.get(key, "")) for key in ("prepare", "validate", "stamp"))


def missing_functions(row: Row) -> list[str]:
    """Return ``key: function`` for each function that a row names, but that does not exist."""

    def exists(name: str) -> bool:
        module, _, attribute = name.partition(".")
        try:
            found = import_module(f"{functions.__package__}.{module}")
        except ModuleNotFoundError:
            return False
        return callable(getattr(found, attribute, None))

    return [f"{key}: {name}" for key, name in _named_functions(row) if name and not exists(name)]


@pytest.mark.rows("DIS-102")
def test_missing_functions_of_a_row_are_reported() -> None:
    words = {"validate": "core.nothing", "prepare_status": "nowhere.at_all", "columns": [{"name": "A", "cell": "a.b"}]}
    row = msgspec.convert(row_of({**FLAT, **words, "subresources": [{"name": "x", "stamp": "cells.no"}]}), Row)
    wanted = [
        "prepare_status: nowhere.at_all",
        "validate: core.nothing",
        "columns: a.b",
        "subresources: stamp: cells.no",
    ]
    assert missing_functions(row) == wanted


@EACH
@pytest.mark.rows("DIS-102")
def test_functions_named_in_rows_exist(row: Row) -> None:
    for one in row.all_versions():
        assert not missing_functions(one), f"types/{one.types}.yaml: {one.kind}: these functions do not exist"
    assert not row.review or row.review in {**REVIEWS, **ACTIONS}
    version = version_of(row)
    empty = dict(version.model.empty)
    assert (empty["apiVersion"], empty["kind"]) == (row.api_version, row.kind)
    assert all(column.cell(empty) is not None for column in version.model.columns if column.name != "Created At")
    assert all(isinstance(get(empty), str) for get in version.published.selectable.values())
    schema = version.model.open_api
    assert schema is not None
    assert schema["description"]
    assert isinstance(version.model.merge_type(), Type)


def _described(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, below in schema.get("properties", {}).items():
        if "description" not in below:
            yield f"{path}.{name}"
        yield from _described(below.get("items", below), f"{path}.{name}")


@pytest.mark.parametrize(
    "row",
    # types with models of their own: only kinds and their important fields have descriptions
    [pytest.param(row, id=f"{row.api_version}.{row.kind}") for row in ROWS if not types_of(row.types).models],
)
@pytest.mark.rows("OAS-003")
def test_every_field_is_described(row: Row) -> None:
    schema = version_of(row).model.open_api
    assert schema is not None
    assert list(_described(schema)) == []


@EACH
@pytest.mark.rows("NEG-003")
def test_types_and_protobuf_messages_have_equal_fields(row: Row) -> None:
    types = types_of(row.types)
    seen: set[str] = set()

    def compare(name: str, message: str) -> None:
        if name in seen:
            return
        seen.add(name)
        fields = types.row(name)["fields"]
        known = json_fields(message)
        assert fields.keys() - {"metadata"} == known.keys() - {"metadata"}, name
        for field, text in fields.items():
            written = split(text).type
            inner = written.removesuffix("{}").removesuffix("[]")
            if types.is_struct(inner):
                message_type = known[field].message_type
                if written.endswith("{}"):
                    message_type = message_type.fields_by_name["value"].message_type
                compare(inner, message_type.name)

    compare(row.kind, protobuf.messages()[row.api_version, row.kind])


# --- any object of any kind is unchanged by each encoding ---

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=5)
_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bytes": st.sampled_from(["", "eA==", "AAEC"]),
    "float": st.sampled_from([0, 1.5, -3]),
    "json": st.sampled_from([{}, {"a": [1, "x"]}]),
    "Quantity": st.sampled_from(["0", "100Mi", "1.5"]),
    "MilliQuantity": st.sampled_from(["0", "2Gi", "0.5", "1u"]),
    "Time": st.sampled_from(["2026-11-21T03:05:11Z", "1999-12-31T23:59:59Z"]),
    "MicroTime": st.sampled_from(["2026-11-21T03:05:11.724683Z", "1999-12-31T23:59:59.000001Z"]),
    "IntOrString": st.integers(1, 2**31 - 1) | _TEXT.filter(bool),
    "ObjectMeta": st.just({"name": "a", "labels": {"k": "v"}}),
}


def _values(types: Types, name: str) -> st.SearchStrategy[Any]:
    if name.endswith("[]"):
        return st.lists(_values(types, name[:-2]), max_size=2)
    if name.endswith("{}"):
        return st.dictionaries(st.sampled_from("abc"), _values(types, name[:-2]), max_size=2)
    if name in SCALARS:
        return _VALUES[name]
    row = types.table[name]
    if isinstance(row, str):
        return _values(types, row.split()[0])
    fields = {field: _values(types, split(text).type) for field, text in types.row(name)["fields"].items()}
    return st.fixed_dictionaries({}, optional=fields)


def _without_empty_lists(value: Any) -> Any:
    """Return a document with null for empty lists.

    Neither protobuf nor Go distinguishes them.
    """
    if isinstance(value, dict):
        return {name: _without_empty_lists(member) for name, member in value.items()}
    return [_without_empty_lists(item) for item in value] or None if isinstance(value, list) else value


OBJECTS = st.sampled_from([row for row in ROWS if not row.review]).flatmap(
    lambda row: st.tuples(st.just(row), _values(types_of(row.types), row.kind))
)


@given(OBJECTS)
@pytest.mark.rows("NEG-002", "ETC-003")
def test_an_object_survives_normalising_protobuf_and_the_store(made: tuple[Row, dict[str, Any]]) -> None:
    row, fields = made
    version = version_of(row)
    body = {**fields, "apiVersion": row.api_version, "kind": row.kind, "metadata": {"name": "a", "uid": "u"}}
    document, unknown = version.model.normalize(body)
    assert unknown == []
    again, _ = version.model.normalize(dict(document))
    assert again == document, "normalising twice changes nothing"
    assert _without_empty_lists(
        version.model.normalize(protobuf.decode(protobuf.encode(document)))[0]
    ) == _without_empty_lists(document)
    raw = version.codec.encode(document)
    shown = version.codec.decode(raw, 7)
    assert shown["metadata"].pop("resourceVersion") == "7"
    assert shown == (function(row.storage.form)(document) if row.storage.form else document)
    other = resource(row).versions[row.version]
    assert version.codec.view(raw, 7) == other.codec.view(raw, 7), "who wrote it and who did not show the same bytes"


@pytest.mark.rows("RV-020")
@pytest.mark.parametrize(
    ("api_version", "kind", "says"),
    [
        ("v1", "Else", 'no kind "Else" is registered for version "v1"'),
        ("v7", "ConfigMap", 'no kind "ConfigMap" is registered for version "v7"'),
        (7, "ConfigMap", 'no kind "ConfigMap" is registered for version "7"'),
        (None, None, 'no kind "" is registered for version ""'),
    ],
)
def test_stored_objects_of_another_kind_are_unreadable(api_version: Any, kind: Any, says: str) -> None:
    raw = orjson.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})
    with pytest.raises(Unreadable, match=says):
        VERSIONS["v1", "ConfigMap"].codec.decode(raw, 1)


@pytest.mark.rows("RV-001")
def test_events_are_one_object_in_two_versions() -> None:
    old, new = VERSIONS["v1", "Event"], VERSIONS["events.k8s.io/v1", "Event"]
    assert new.names.stored_resource == old.names.stored_resource == old.names.group_resource
    body = {"metadata": {"name": "a"}, "regarding": {"name": "w"}, "note": "n", "reportingController": "c"}
    raw = new.codec.encode(new.model.normalize({**body, "eventTime": "2026-11-21T03:05:11.000000Z"})[0])
    shown = old.codec.decode(raw, 1)
    assert (shown["involvedObject"], shown["message"], shown["reportingComponent"]) == ({"name": "w"}, "n", "c")
    assert (shown["apiVersion"], shown["kind"]) == ("v1", "Event")
    assert new.codec.encode(new.codec.decode(old.codec.encode(shown), 1)) == raw


# --- scalars ---

MICRO_TIME = SCALARS["MicroTime"]
SCALAR_CASES = [
    (MICRO_TIME, "2026-11-21T04:05:11.724683+01:00", "2026-11-21T03:05:11.724683Z"),
    (MICRO_TIME, None, None),
    (MICRO_TIME, "0001-01-01T00:00:00.000000Z", None),
    (MICRO_TIME, "0800-01-01T00:00:00.000001Z", "0800-01-01T00:00:00.000001Z"),
    (MICRO_TIME, "9999-12-31T23:59:59.000000-05:00", "Time.MarshalJSON: year outside of range [0,9999]"),
    (MICRO_TIME, "2026-11-21T04:05:11Z", 'parsing time "2026-11-21T04:05:11Z" as "2006-01-02T15:04:05.000000Z07:00": '
     'cannot parse "Z" as ".000000"'),
    (MICRO_TIME, "2026-11-21T04:05:11.0000009Z", 'parsing time "2026-11-21T04:05:11.0000009Z" as '
     '"2006-01-02T15:04:05.000000Z07:00": cannot parse "9Z" as "Z07:00"'),
    (MICRO_TIME, "2026-11-21T04:05:11.12345xZ", 'parsing time "2026-11-21T04:05:11.12345xZ" as '
     '"2006-01-02T15:04:05.000000Z07:00": cannot parse ".12345xZ" as ".000000"'),
    (MICRO_TIME, "2026-11-21T04:05:11,123456Z", "2026-11-21T04:05:11.123456Z"),
    (MICRO_TIME, "yesterday", 'parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": '
     'cannot parse "yesterday" as "2006"'),
    (MICRO_TIME, 5, "json: cannot unmarshal number into Go value of type string"),
    (IntOrText(), 80, 80),
    (IntOrText(), "http", "http"),
    (IntOrText(), 2**31, "json: cannot unmarshal number 2147483648 into Go value of type int32"),
    (Quantity(), "100Mi", "100Mi"),
    (Quantity(), 5, "5"),
    (Quantity(), "a lot", "quantities must match the regular expression "
     "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
]  # fmt: skip


@pytest.mark.parametrize(("scalar", "given_value", "wanted"), SCALAR_CASES, ids=lambda it: repr(it)[:40])
@pytest.mark.rows("ERR-11")
def test_scalar_decoding(scalar: Any, given_value: Any, wanted: Any) -> None:
    into = Decoding()
    try:
        found = scalar.decode(given_value, None, into)
    except DecodeError as error:
        found = str(error)
    assert (str(into.fault) if into.fault else found) == wanted


# --- cost, and the example of the recipe ---


@pytest.mark.rows("DIS-101")
def test_types_of_kinds_are_loaded_lazily() -> None:
    program = (
        "from apiext.catalog.builtin.resources import builtin_resources;"
        "from apiext.go_types.tables import types_of;"
        "from apiext.http import messages;"
        "found = builtin_resources();"
        "print(len(found) > 20, types_of.cache_info().currsize, messages._pool.cache_info().currsize)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "3", "0"], "those of definitions in both versions and of namespaces"


ONE_FILE = """
RankClass:
  doc: RankClass names a priority for pods.
  kind:
    group: ranking.k8s.io
    version: v1
    resource: rankclasses
    namespaced: false
    short: [pc]
    columns: [name, {name: Value, type: integer, description: The value, path: value}, age]
    select: [preemptionPolicy]
    rules:
      - {path: value, immutable: may not be changed in an update., max: 1000000000}
      - {path: preemptionPolicy, enum: [Never, PreemptLowerPriority], immutable: true}
  required: [value]
  fields:
    value: int32! = 2 | The value of this priority class.
    globalDefault: bool = 3 | Whether it is the default.
    description: string = 4 | What it is for.
    preemptionPolicy: PreemptionPolicy? = 5 | Never or PreemptLowerPriority.
  defaults: {preemptionPolicy: PreemptLowerPriority}
PreemptionPolicy: string
"""
USE_OF_IT = """
import json
from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import Catalog
from apiext.discovery.groups import resource_list
from apiext.http import protobuf

found = next(one for one in builtin_resources() if one.resource == "rankclasses")
version = found.versions["v1"]
body = {"apiVersion": "ranking.k8s.io/v1", "kind": "RankClass", "metadata": {"name": "a"}, "value": 5, "zz": 1}
document, unknown = version.model.normalize(body)
prepared = version.endpoints[""].prepare(document, None)
try:
    version.model.normalize({**body, "value": "x"})
except ValueError as error:
    wrong = str(error)
changed = {**document, "value": 2000000000, "preemptionPolicy": "Often"}
print(json.dumps({
    "document": document,
    "unknown": unknown,
    "read": version.codec.decode(version.codec.encode(prepared), 1),
    "protobuf": protobuf.decode(protobuf.encode(document)),
    "cells": [column.cell(document) for column in version.model.columns][:2],
    "selectors": list(version.published.selectable),
    "errors": [str(error) for error in version.validation.validate(changed, document)],
    "valid": version.validation.validate(document, None),
    "wrong": wrong,
    "published": resource_list(Catalog().with_resource(found), "ranking.k8s.io", "v1")["resources"],
    "required": version.model.open_api["required"],
    "owned": version.model.merge_type().map is not None,
}))
"""


@pytest.mark.rows("DIS-102")
def test_new_kind_needs_one_yaml_file(tmp_path: Path) -> None:
    for part in ("apiext", "proto", "scripts"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "apiext/go_types/types/ranking.yaml").write_text(ONE_FILE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    written = run("scripts/gen_proto.py")
    assert [line.partition(":")[0] for line in written.splitlines()] == [
        "apiext/go_types/compiled/rows.json",
        "apiext/go_types/compiled/ranking.json",
        "proto/k8s.proto",
        "apiext/http/pb/k8s.binpb",
    ]
    found = json.loads(run("-c", USE_OF_IT))
    document = found["document"]
    assert (document["value"], document["preemptionPolicy"], found["unknown"]) == (5, "PreemptLowerPriority", ["zz"])
    assert found["read"]["metadata"]["resourceVersion"] == "1"
    assert found["protobuf"] == {**document, "metadata": {"name": "a"}}
    assert found["cells"] == ["a", 5]
    assert found["selectors"] == ["metadata.name", "preemptionPolicy"]
    assert found["errors"] == [
        "value: Forbidden: may not be changed in an update.",
        "value: Invalid value: 2000000000: must be less than or equal to 1000000000",
        'preemptionPolicy: Unsupported value: "Often": supported values: "Never", "PreemptLowerPriority"',
        'preemptionPolicy: Invalid value: "Often": field is immutable',
    ]
    assert found["valid"] == []
    assert found["wrong"].endswith("cannot unmarshal string into Go struct field RankClass.value of type int32")
    assert [one["shortNames"] for one in found["published"]] == [["pc"]]
    assert (found["required"], found["owned"]) == (["value"], True)


FLAT = {"version": "v2", "resource": "as", "kind": "A", "types": "core", "namespaced": True}


@pytest.mark.rows("DIS-102")
def test_keys_of_a_row_are_compiled_into_nested_fields() -> None:
    words = {**FLAT, "status": True, "prepare_status": "a.b", "upserts": True, "short": ["x"]}
    found = msgspec.convert(row_of({**words, "other_versions": [{"version": "v1", "on_request": True}]}), Row)
    (other,) = found.others
    assert found.status == other.status == Status(served=True, prepare="a.b")
    assert (found.writes, found.published) == (Writes(upserts=True), Published(short=("x",)))
    assert [one.version for one in found.all_versions()] == ["v2", "v1"]
    assert (found.storage.version, other.storage.version) == ("", "v2"), "v1 is stored as v2"
    assert other.published == Published(short=("x",), on_request=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"upsert": True}, "contains unknown field `upsert`"),
        ({"upserts": 1}, r"Expected `bool`, got `int` - at `\$.writes.upserts`"),
        ({"other_versions": [{"version": "v1", "renames": {}}]}, "contains unknown field `renames`"),
        ({"stored_as": {"group": "g"}}, "missing required field `version`"),
    ],
)
@pytest.mark.rows("DIS-102")
def test_row_with_unknown_or_invalid_keys_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        row_of({**FLAT, **words})


def test_a_function_is_loaded_when_it_is_called() -> None:
    call = function("cells.data")
    assert call({"data": {"a": "b"}, "binaryData": {"c": "d"}}) == 2
    with pytest.raises(ModuleNotFoundError):
        function("nowhere.nothing")({})


# --- rules ---

RULES = [
    ({"path": "spec.a", "required": True}, {"spec": {"a": ""}}, None, ["spec.a: Required value"]),
    ({"path": "spec.a", "required": "must be given"}, {"spec": {}}, None, ["spec.a: Required value: must be given"]),
    ({"path": "spec.a", "required": True}, {}, None, []),
    ({"path": "spec.a", "required": True}, {"spec": {"a": False}}, None, []),
    ({"path": "a", "enum": ["A", "B"]}, {"a": "C"}, None, ['a: Unsupported value: "C": supported values: "A", "B"']),
    ({"path": "a", "enum": ["A"]}, {}, None, []),
    ({"path": "a", "immutable": True}, {"a": 2}, {"a": 1}, ["a: Invalid value: 2: field is immutable"]),
    ({"path": "a", "immutable": True}, {"a": 2}, {}, ["a: Invalid value: 2: field is immutable"]),
    ({"path": "a", "immutable": "stays"}, {}, {"a": 1}, ["a: Forbidden: stays"]),
    ({"path": "a", "immutable": True}, {"a": 2}, None, []),
    ({"path": "a[].b", "immutable": True}, {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}]}, []),
    ({"path": "a[].b", "immutable": True}, {"a": [{"b": 2}]}, {"a": [{"b": 1}]},
     ["a[0].b: Invalid value: 2: field is immutable"]),
    ({"path": "a{}", "immutable": True}, {"a": {"k": 2, "new": 1}}, {"a": {"k": 1}},
     ["a[k]: Invalid value: 2: field is immutable"]),
    ({"path": "a[].b", "format": "dns1123_label"}, {"a": [{"b": "x"}, {"b": "X"}]}, None,
     ['a[1].b: Invalid value: "X": a lowercase RFC 1123 label must consist of']),
    ({"path": "a", "min": 0}, {"a": -1}, None, ["a: Invalid value: -1: must be greater than or equal to 0"]),
    ({"path": "a", "above": 0}, {"a": 0}, None, ["a: Invalid value: 0: must be greater than 0"]),
    ({"path": "a", "max": 9}, {"a": 10}, None, ["a: Invalid value: 10: must be less than or equal to 9"]),
    ({"path": "a", "min": 0, "max": 9}, {"a": 10}, None, ["a: Invalid value: 10: must be between 0 and 9, inclusive"]),
    ({"path": "a", "min": 0, "max": 9}, {"a": 9}, None, []),
    ({"path": "a", "min": 0}, {}, None, []),
    ({"path": "a", "min": 0, "says": "too small"}, {"a": -1}, None, ["a: Invalid value: -1: too small"]),
    ({"path": "a", "enum": ["A"]}, {"a": ""}, None, []),
    ({"path": "a", "enum": ["A"], "empty": True}, {"a": ""}, None, ['a: Unsupported value: ""']),
    ({"path": "a", "enum": ["A"], "empty": True}, {}, None, []),
    ({"path": "a", "format": "absolute_path", "empty": True}, {}, None, ['a: Invalid value: "": must be an absolute']),
    ({"path": "a[]", "type": "KeyToPath"}, {"a": [{"key": "k", "path": "../p"}, {"path": "p"}]}, None,
     ['a[0].path: Invalid value: "../p": must not contain', "a[1].key: Required value"]),
    ({"path": "a", "type": "KeyToPath"}, {}, None, []),
    ({"path": "a", "most": 2}, {"a": [1, 2, 3]}, None, ["a: Too many: 3: must have at most 2 items"]),
    ({"path": "a", "most": 2}, {"a": [1, 2]}, None, []),
    ({"path": "a", "most": 2}, {}, None, []),
    ({"path": "a", "immutable": True, "declared": True}, {"a": 2}, {"a": 1},
     ["a: Invalid value: null: field is immutable"]),
    ({"path": "a", "immutable": True, "declared": True}, {"a": 2}, None, []),
    ({"path": "a", "immutable": True, "declared": True}, {"a": 2}, {"a": 2}, []),
    ({"path": "a", "min": 0, "declared": True}, {"a": -1}, {"a": -1}, []),
    ({"path": "a", "min": 0, "declared": True}, {"a": -2}, {"a": -1},
     ["a: Invalid value: -2: must be greater than or equal to 0"]),
    ({"path": "a", "format": "long_name_caseless"}, {"a": "A.b"}, None, []),
    ({"path": "a", "format": "long_name_caseless"}, {"a": "A_"}, None,
     ['a: Invalid value: "A_": an RFC 1123 subdomain must consist of alphanumeric characters']),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "new", "old", "errors"), RULES)
@pytest.mark.rows("DIS-102")
def test_validation_rules_report_errors(
    rule: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None, errors: list[str]
) -> None:
    found = [str(error) for error in compile_rules("A", [rule])(new, old)]
    assert len(found) == len(errors)
    assert all(error.startswith(wanted) for error, wanted in zip(found, errors, strict=True)), found


def test_unknown_rule_key_is_refused() -> None:
    known = "required, enum, immutable, format, type, most, min, max, above, says, empty, declared"
    with pytest.raises(ValueError, match=f"^RankClass: rule of a: unique is no rule; there are {known}$"):
        compile_rules("RankClass", [{"path": "a", "unique": True}])


def concurrently(work: Callable[[], Any], *, threads: int = 8) -> list[Any]:
    """Return the results of threads that begin the same work at the same time.

    The threads switch as often as possible.
    """
    begin, interval = Barrier(threads), sys.getswitchinterval()

    def run(_: int) -> Any:
        begin.wait()
        return work()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, range(threads)))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize(("file", "kind"), [("apps", "Deployment"), ("batch", "CronJob")])
def test_concurrent_first_uses_get_the_complete_type(file: str, kind: str) -> None:
    def fields(types: Types) -> tuple[object, ...]:
        """Return the names of all fields, to a depth of three, of the Go type and of the merge type."""
        merged = table_type(types, kind).map
        assert merged is not None
        return _names(types.root(kind)), {name: set(one.map.fields) for name, one in merged.fields.items() if one.map}

    known = types_of(file)
    for _ in range(10):
        fresh = Types(known.table, known.own, known.package)
        assert all(found == fields(known) for found in concurrently(lambda fresh=fresh: fields(fresh)))


def _names(struct: Struct, depth: int = 3) -> dict[str, Any]:
    inner = {name: field.type for name, field in struct.fields.items()}
    return {name: _names(one, depth - 1) if depth and isinstance(one, Struct) else {} for name, one in inner.items()}
