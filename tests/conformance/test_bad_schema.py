"""Expensive or confusing schemas and values: errors after little work.

The server serves other clients meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, Answer, Client
from tests.support.processes import Server
from tests.support.strain import strained

JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def check_load(server: Server) -> Iterator[None]:
    """Check the CPU and memory of a test, and that the server answers /readyz during it."""
    with strained(server):
        yield


pytestmark = pytest.mark.usefixtures("check_load")
BOUNDS = pytest.mark.differs("it has no such bound")


def under_spec(schema: dict[str, Any]) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}


def nested(levels: int, leaf: dict[str, Any]) -> dict[str, Any]:
    for _ in range(levels):
        leaf = {"type": "object", "properties": {"a": leaf}}
    return leaf


def deep(levels: int, opening: str, leaf: str, closing: str) -> bytes:
    return (opening * levels + leaf + closing * levels).encode()


def with_spec(widgets: Resource, name: str, spec: bytes) -> bytes:
    return json.dumps(widgets.make(name)).encode().replace(b'"spec": {}', b'"spec": ' + spec)


def wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(count)}}


# ------------------------------------------------------------- nesting


@pytest.fixture(scope="module")
def widgets(request: pytest.FixtureRequest) -> Resource:
    """A custom resource whose spec may have any fields."""
    client = Client(request.getfixturevalue("server").url)
    return serve(client, schema=under_spec({"type": "object", "x-kubernetes-preserve-unknown-fields": True}))


@pytest.fixture(scope="module")
def few(request: pytest.FixtureRequest) -> Resource:
    """A custom resource whose spec has one field, an integer."""
    client = Client(request.getfixturevalue("server").url)
    return serve(client, schema=under_spec({"type": "object", "properties": {"n": {"type": "integer"}}}))


@pytest.mark.parametrize("levels", [1_000, 10_000, 500_000])
@pytest.mark.parametrize(
    ("opening", "leaf", "closing"), [('{"a":', "1", "}"), ("[", "", "]")], ids=["objects", "lists"]
)
def test_deeply_nested_json_is_refused(widgets: Resource, levels: int, opening: str, leaf: str, closing: str) -> None:
    body = deep(levels, opening, leaf, closing)[: 3 * 1024 * 1024]
    assert widgets.api.request("POST", widgets.path(), body, JSON).status == 400


@pytest.mark.parametrize("levels", [1_000, 10_000, 500_000])
def test_deeply_nested_yaml_is_refused(widgets: Resource, levels: int) -> None:
    assert widgets.api.request("POST", widgets.path(), deep(levels, "[", "", "]"), YAML).status == 400


@pytest.mark.parametrize(
    ("kind", "levels"),
    [pytest.param(MERGE, 1_000, marks=BOUNDS), (MERGE, 100_000), (JSON_PATCH, 1_000), (JSON_PATCH, 100_000)],
)
def test_deeply_nested_patches_are_refused(widgets: Resource, kind: str, levels: int) -> None:
    widgets.api.post(widgets.path(), widgets.make("deep"))
    body = deep(levels, '{"spec":' if kind == MERGE else "[", "1", "}" if kind == MERGE else "]")
    assert widgets.api.patch(f"{widgets.path()}/deep", body.decode(), kind).status == 400


@pytest.mark.rows("WRI-023")
@BOUNDS
def test_body_with_too_many_lists_is_refused(widgets: Resource) -> None:
    body = with_spec(widgets, "empties", b'{"a": [' + b"[]," * 900_000 + b"[]]}")
    answer = widgets.api.request("POST", widgets.path(), body, JSON)
    assert "more than 400000 objects and lists" in answer.expect(400)["message"]


@pytest.mark.rows("WRI-023")
def test_object_over_etcd_size_limit_is_refused(widgets: Resource) -> None:
    body = with_spec(widgets, "long", b'{"a": "' + b"x" * 1_900_000 + b'"}')
    answer = widgets.api.request("POST", widgets.path(), body, JSON)
    assert answer.expect(500)["message"] == "etcdserver: request is too large"  # upstream's message


@pytest.mark.rows("PRU-008", "WRI-013", "WRI-014")
@pytest.mark.parametrize("mode", ["Ignore", "Warn", pytest.param("Strict", marks=BOUNDS)])
def test_warnings_of_many_unknown_fields_are_limited(few: Resource, mode: str) -> None:
    first = "a" * 40  # long names, so that few warnings fit: Python's client reads at most 100 headers
    fields = b'"%s0":1,"%s1":1' % ((first.encode(),) * 2) + b"".join(b',"p%d":1' % number for number in range(200_000))
    fields = fields.replace(b'"p', b'"b' + b"b" * 30, 200)
    body = with_spec(few, f"unknown-{mode.lower()}", b"{" + fields + b"}")
    answer = few.api.request("POST", f"{few.path()}?fieldValidation={mode}", body, JSON)
    assert answer.status == (400 if mode == "Strict" else 201), answer.raw[:300]
    assert len(answer.raw) < 100_000
    assert sum(map(len, answer.warnings)) < 6_000
    if mode == "Strict":
        assert 'strict decoding error: unknown field "spec.' + first in answer.json["message"]


@pytest.mark.rows("WRI-023")
def test_body_over_the_size_limit_is_refused(widgets: Resource) -> None:
    body = with_spec(widgets, "huge", b'{"a": ' + b"9" * 20_000_000 + b"}")
    try:
        answer = widgets.api.request("POST", widgets.path(), body, JSON)
    except OSError:  # the server closed the connection before it had read the body
        return
    assert answer.status == 413


@pytest.mark.rows("VAL-004", "VAL-008", "DEC-001")
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (b"9223372036854775807", b"9223372036854775807"), (b"-9223372036854775808", b"-9223372036854775808"),
        (b"9223372036854775808", b""), (b"1.0", b"1"), (b"1e2", b"100"), (b"-0", b"0"), (b"-0.0", b"0"), (b"1.5", b""),
        (b"1e300", b""), (b"1e-400", b"0"),
    ],
    ids=lambda it: it.decode(),
)  # fmt: skip
def test_integer_field_accepts_only_64_bit_whole_numbers(few: Resource, value: bytes, stored: bytes) -> None:
    name = f"n{abs(hash(value))}"
    answer = few.api.request("POST", few.path(), with_spec(few, name, b'{"n": ' + value + b"}"), JSON)
    if not stored:
        assert "spec.n in body must be of type integer" in answer.expect(422)["message"]
        return
    answer.expect(201)
    assert b'"n":' + stored + b"}" in few.api.get(few.path(name)).raw


# ------------------------------------------------------- values

ODD: list[tuple[str, bytes, tuple[int, ...]]] = [
    ("nan", b"NaN", (400,)),
    ("infinity", b"-Infinity", (400,)),
    ("1e400", b"1e400", (400,)),
    ("negative zero", b"-0", (201,)),
    ("2^63", b"9223372036854775808", (201,)),
    ("2^64", b"18446744073709551616", (201,)),
    ("a long integer", b"1" * 3_000_000, (400, 413)),
    ("a lone surrogate", rb'"\ud800"', (201,)),
    ("a nul", rb'"a\u0000b"', (201,)),
    ("a raw nul", b'"a\0b"', (400,)),
    ("invalid utf-8", b'"\xff\xfe"', (201, 400)),
    ("duplicate keys", b'{"b":1,"b":2}', (201,)),
]


@pytest.mark.rows("DEC-001", "DEC-002", "DEC-003")
@pytest.mark.parametrize(("value", "codes"), [row[1:] for row in ODD], ids=[row[0] for row in ODD])
def test_special_json_values_are_stored_or_refused(widgets: Resource, value: bytes, codes: tuple[int, ...]) -> None:
    name = f"odd-{abs(hash(value))}"
    body = with_spec(widgets, name, b'{"a": ' + value + b"}")
    answer = widgets.api.request("POST", widgets.path(), body, JSON)
    assert answer.status in codes, answer.raw[:300]
    if answer.status == 201:
        kept = widgets.api.get(f"{widgets.path()}/{name}").expect(200)
        assert kept["spec"]["a"] is not None
        strict = widgets.api.request("POST", f"{widgets.path()}?fieldValidation=Strict&dryRun=All", body, JSON)
        assert (strict.status == 400) == (value.startswith(b"{")) or strict.status == 409


# ---------------------------------------------------- patterns


@pytest.mark.rows("STR-010")
@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)b", "(?<!a)b", r"(a)\1", "a++", "(?>a)", "((a{1,1000}){1,1000}){1,1000}",
        "a" * 10_000 + "(",
    ],
    ids=["ahead", "behind", "reference", "possessive", "atomic", "counted nests", "long"],
)  # fmt: skip
def test_schema_with_invalid_pattern_is_refused(api: Client, pattern: str) -> None:
    body = definition(fresh_group(), schema=under_spec({"type": "string", "pattern": pattern}))
    assert "must be a valid regular expression" in api.post(DEFINITIONS, body).expect(422)["message"]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(([a-z0-9]+)*\.)*$", "a" * 200_000 + "!"),
        ("^(a|a)*$", "a" * 200_000 + "!"),
        ("^(a|aa)+$", "a" * 200_000 + "!"),
        ("(.*)" * 20 + "x", "a" * 20_000),
        ("^[a-z]{1,1000}$", "a" * 200_000),
        ("a" * 10_000, "a" * 9_999),
        ("^" + "(" * 900 + "a*b" + ")" * 900, "a" * 200_000),
    ],
    ids=["nested stars", "same branches", "overlap", "many stars", "counted", "long", "nests"],
)
def test_patterns_match_without_catastrophic_backtracking(api: Client, pattern: str, text: str) -> None:
    members = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    served = serve(api, schema=under_spec(members))
    message = api.post(served.path(), served.make("a", a=text)).expect(422)["message"]
    assert "should match" in message or "1000000000 steps" in message


@pytest.mark.rows("VAL-006")
@pytest.mark.parametrize(
    ("kind", "text"),
    [("duration", "9" * 400_000), ("duration", "1 " * 200_000), ("email", "a " * 200_000), ("uri", "%" * 400_000),
     ("date-time", "2024-01-01T00:00:00." + "0" * 400_000), ("hostname", "a." * 200_000),
     ("byte", "YWJj" * 100_001 + "=")],
    ids=["digits", "numbers", "words", "escapes", "fraction", "labels", "bytes"],
)  # fmt: skip
def test_formats_are_validated_on_long_strings(api: Client, kind: str, text: str) -> None:
    members = {"type": "object", "properties": {"a": {"type": "string", "format": kind}}}
    served = serve(api, schema=under_spec(members))
    answer = api.post(served.path(), served.make("a", a=text))
    assert "spec.a in body must be of type" in answer.expect(422)["message"]


# ------------------------------------------------------ schemas

Case = Callable[[], tuple[dict[str, Any] | str, tuple[int, ...]]]
BOMBS: dict[str, Case] = {
    "5,000 properties below 100 levels": lambda: (nested(100, wide(5_000)), (201,)),
    "5,000 levels": lambda: (deep(5_000, '{"type":"object","properties":{"a":', "{}", "}}").decode(), (400, 422)),
    "300 levels": lambda: (nested(300, {"type": "string"}), (400, 422)),
    "wide anyOf": lambda: ({"type": "integer", "anyOf": [{"minimum": number} for number in range(5_000)]}, (201,)),
    "a tree of junctors": lambda: (
        {"type": "integer", "allOf": [{"anyOf": [{"not": {"minimum": x}} for x in range(70)]} for _ in range(70)]},
        (201,),
    ),
    "10,000 values": lambda: ({"type": "string", "enum": [f"v{number}" for number in range(10_000)]}, (201,)),
    "a default that is wrong": lambda: ({"type": "string", "default": 1}, (422,)),
    "a megabyte": lambda: ({"type": "string", "description": "x" * 1_000_000}, (201,)),
    "a reference": lambda: ({"$ref": "#/definitions/me", "definitions": {"me": {"$ref": "#"}}}, (422,)),
    "int-or-string that is neither": lambda: (
        {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
        (422,),
    ),
    "an embedded text": lambda: ({"type": "string", "x-kubernetes-embedded-resource": True}, (422,)),
    "5,000 faults": lambda: (
        {"type": "object", "properties": {f"p{number}": {"format": "x"} for number in range(5_000)}},
        (422,),
    ),
}


@pytest.mark.rows("SCH-014", "STR-001", "STR-004", "DEF-001")
@pytest.mark.parametrize("bomb", [pytest.param(bomb, marks=BOUNDS) if bomb == "300 levels" else bomb for bomb in BOMBS])
def test_large_schemas_are_accepted_or_refused(api: Client, bomb: str) -> None:
    schema, codes = BOMBS[bomb]()
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = json.dumps(definition(fresh_group(), schema=under_spec({}))).replace('"spec": {}', f'"spec": {text}')
    answer = api.request("POST", DEFINITIONS, body, JSON)
    assert answer.status in codes, answer.raw[:300]
    assert len(answer.raw) < 4_000_000


def check_refused(answer: Answer, text: str) -> None:
    assert 400 <= answer.status < 500, answer.raw[:300]
    assert text in answer.json["message"]


@BOUNDS
def test_too_many_defaulted_values_are_refused(api: Client) -> None:
    item = {"type": "object", "properties": {"b": {"type": "string", "default": "x" * 100_000}}}
    served = serve(api, schema=under_spec({"type": "object", "properties": {"a": {"type": "array", "items": item}}}))
    check_refused(api.post(served.path(), served.make("a", a=[{}] * 300_000)), "would add more than")


@BOUNDS
def test_validation_of_many_branches_exceeds_step_budget(api: Client) -> None:
    item = {"type": "integer", "anyOf": [{"minimum": number} for number in range(1_000, 3_000)]}
    served = serve(api, schema=under_spec({"type": "object", "properties": {"a": {"type": "array", "items": item}}}))
    check_refused(api.post(served.path(), served.make("a", a=[0] * 300_000)), "steps")
