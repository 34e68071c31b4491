"""The tables of built-in kinds: they agree with each other, cost nothing unread, and a further kind is a table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.builtin import rows as rows_module
from apiext.catalog.builtin.go_types import SCALARS, Types, read_yaml, split, types_of
from apiext.catalog.builtin.kinds import kinds, resource
from apiext.catalog.builtin.rows import Row, function, rows
from apiext.catalog.builtin.scalars import IntOrText, Quantity
from apiext.catalog.served import ServedVersion
from apiext.catalog.stored import Unreadable
from apiext.crd.typed import Decoding
from apiext.documents.errors import DecodeError
from apiext.http import protobuf
from apiext.http.messages import json_fields
from apiext.managedfields.types import Type
from apiext.verbs.reviews import REVIEWS

ROWS = rows()
EACH = pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.api_version}.{row.kind}") for row in ROWS])
VERSIONS: dict[tuple[str, str], ServedVersion] = {
    (version.api_version, version.kind): version
    for one in kinds(lambda _, on: True)
    for version in one.versions.values()
}


def version_of(row: Row) -> ServedVersion:
    return VERSIONS[row.api_version, row.kind]


@EACH
@pytest.mark.rows("DIS-102")
def test_what_a_row_names_is_there(row: Row) -> None:
    for name in (row.defaults, row.prepare, row.validate, row.warnings):
        if name:
            module, _, attribute = name.partition(".")
            found = __import__(f"{rows_module.__package__}.{module}", fromlist=[attribute])
            assert callable(getattr(found, attribute))
    assert not row.review or row.review in REVIEWS
    version = version_of(row)
    empty = dict(version.empty)
    assert (empty["apiVersion"], empty["kind"]) == (row.api_version, row.kind)
    assert all(column.cell(empty) is not None for column in version.columns if column.name != "Created At")
    assert all(isinstance(get(empty), str) for get in version.selectable.values())
    schema = version.open_api
    assert schema is not None
    assert schema["description"]
    assert isinstance(version.merge_type(), Type)


def _described(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, below in schema.get("properties", {}).items():
        if "description" not in below:
            yield f"{path}.{name}"
        yield from _described(below.get("items", below), f"{path}.{name}")


@EACH
@pytest.mark.rows("OAS-003")
def test_every_field_is_described(row: Row) -> None:
    schema = version_of(row).open_api
    assert schema is not None
    assert list(_described(schema)) == []


@EACH
@pytest.mark.rows("NEG-003")
def test_types_and_messages_have_the_same_fields(row: Row) -> None:
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
            inner = split(text).type.removesuffix("{}").removesuffix("[]")
            if types.is_struct(inner):
                compare(inner, known[field].message_type.name)

    compare(row.kind, protobuf.messages()[row.api_version, row.kind])


# --- any object of any kind survives every form ---

_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=5)
_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bytes": st.sampled_from(["", "eA==", "AAEC"]),
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
        return _VALUES[row.split()[0]]
    fields = {field: _values(types, split(text).type) for field, text in types.row(name)["fields"].items()}
    return st.fixed_dictionaries({}, optional=fields)


def _without_empty_lists(value: Any) -> Any:
    """Return a document with null for empty lists: protobuf does not tell them apart, in Go either."""
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
    document, unknown = version.normalize(body)
    assert unknown == []
    again, _ = version.normalize(dict(document))
    assert again == document, "normalising twice changes nothing"
    assert _without_empty_lists(
        version.normalize(protobuf.decode(protobuf.encode(document)))[0]
    ) == _without_empty_lists(document)
    raw = version.encode(document)
    shown = version.decode(raw, 7)
    assert shown["metadata"].pop("resourceVersion") == "7"
    assert shown == (function(row.stored)(document) if row.stored else document)
    other = resource(row).versions[row.version]
    assert version.view(raw, 7) == other.view(raw, 7), "who wrote it and who did not show the same bytes"


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
def test_what_is_no_object_of_its_kind_cannot_be_read(api_version: Any, kind: Any, says: str) -> None:
    raw = orjson.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})
    with pytest.raises(Unreadable, match=says):
        VERSIONS["v1", "ConfigMap"].decode(raw, 1)


@pytest.mark.rows("RV-001")
def test_events_are_one_object_in_two_versions() -> None:
    old, new = VERSIONS["v1", "Event"], VERSIONS["events.k8s.io/v1", "Event"]
    assert new.stored_resource == old.stored_resource == old.group_resource
    body = {"metadata": {"name": "a"}, "regarding": {"name": "w"}, "note": "n", "reportingController": "c"}
    raw = new.encode(new.normalize({**body, "eventTime": "2026-11-21T03:05:11.000000Z"})[0])
    shown = old.decode(raw, 1)
    assert (shown["involvedObject"], shown["message"], shown["reportingComponent"]) == ({"name": "w"}, "n", "c")
    assert (shown["apiVersion"], shown["kind"]) == ("v1", "Event")
    assert new.encode(new.decode(old.encode(shown), 1)) == raw


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
def test_scalars(scalar: Any, given_value: Any, wanted: Any) -> None:
    into = Decoding()
    try:
        found = scalar.decode(given_value, None, into)
    except DecodeError as error:
        found = str(error)
    assert (str(into.fault) if into.fault else found) == wanted


# --- cost, and the recipe ---


@pytest.mark.rows("DIS-101")
def test_nothing_of_the_types_is_read_before_it_is_needed() -> None:
    program = (
        "from apiext.catalog.builtin.resources import builtin_resources;"
        "from apiext.catalog.builtin.go_types import types_of;"
        "from apiext.http import messages;"
        "found = builtin_resources();"
        "print(len(found) > 20, types_of.cache_info().currsize, messages._pool.cache_info().currsize)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "0", "0"]


RECIPE = """
row:
  group: scheduling.k8s.io
  version: v1
  resource: priorityclasses
  kind: PriorityClass
  types: scheduling
  namespaced: false
  short: [pc]
  columns: [name, {name: Value, type: integer, description: The value, path: value}, age]
types:
  PriorityClass:
    doc: PriorityClass defines mapping from a priority class name to the priority integer value.
    required: [value]
    fields:
      value: int32! | The value of this priority class.
      globalDefault: bool | Whether it is the default.
      description: string | What it is for.
      preemptionPolicy: PreemptionPolicy? | Never or PreemptLowerPriority.
    defaults: {preemptionPolicy: PreemptLowerPriority}
  PreemptionPolicy: string
"""


@pytest.mark.rows("DIS-102")
def test_a_further_kind_is_a_table() -> None:
    recipe = yaml.safe_load(RECIPE)
    served = resource(Row(**recipe["row"]), lambda _: Types({**read_yaml("types/meta.yaml"), **recipe["types"]}))
    version = served.versions["v1"]
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a"}, "zz": 1}
    document, unknown = version.normalize(body)
    assert unknown == ["zz"]
    assert (document["value"], document["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    prepared = version.endpoints[""].prepare(document, None)
    assert version.decode(version.encode(prepared), 1)["metadata"]["resourceVersion"] == "1"
    assert [column.cell({**document, "value": 5}) for column in version.columns][1] == 5
    with pytest.raises(
        DecodeError, match=r"cannot unmarshal string into Go struct field PriorityClass.value of type int32"
    ):
        version.normalize({**body, "value": "x"})
    assert version.merge_type().map is not None


def test_a_function_is_loaded_when_it_is_called() -> None:
    call = function("cells.data")
    assert call({"data": {"a": "b"}, "binaryData": {"c": "d"}}) == 2
    with pytest.raises(ModuleNotFoundError):
        function("nowhere.nothing")({})
