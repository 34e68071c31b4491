"""Content negotiation by Accept and Content-Type."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.cases import read as read_yaml
from apiext.http import negotiation
from apiext.http.negotiation import JSON, PROTOBUF, YAML
from apiext.meta.status import StatusError

CASES = read_yaml(Path(__file__).parent / "cases" / "negotiation.yaml")
SHORT = {"json": JSON, "yaml": YAML, "pb": PROTOBUF}


@pytest.mark.rows("NEG-001", "NEG-002", "NEG-004", "TAB-001", "PAR-001", "ERR-15")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_accept_selects_encoding_and_kind(case: dict[str, Any]) -> None:
    typed = case.get("typed", False)
    if case["then"] == 406:
        with pytest.raises(StatusError) as caught:
            negotiation.output(case["accept"], typed=typed)
        assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
        assert caught.value.message.endswith(f": {JSON}, {YAML}, {PROTOBUF}")
        return
    wanted = negotiation.output(case["accept"], typed=typed)
    encoding, kind, version = case["then"]
    assert (wanted.encoding, wanted.kind, wanted.version) == (SHORT[encoding], kind, version)
    assert wanted.plain == (case["then"] == ["json", "", ""])


@pytest.mark.rows("TAB-001", "ERR-15")
def test_table_is_refused_for_kinds_without_tables() -> None:
    table = f"{JSON};as=Table;v=v1;g=meta.k8s.io"
    assert negotiation.output(f"{table},{YAML}", typed=True, tables=False).encoding == YAML
    with pytest.raises(StatusError):
        negotiation.output(table, typed=True, tables=False)


@pytest.mark.rows("NEG-008", "RV-010")
def test_watch_accept_allows_json_and_protobuf_only() -> None:
    assert negotiation.stream("application/json;stream=watch", typed=False).encoding == JSON
    assert negotiation.stream(f"{PROTOBUF};stream=watch", typed=True).encoding == PROTOBUF
    with pytest.raises(StatusError) as caught:
        negotiation.stream("application/yaml,application/json", typed=False)
    assert negotiation.stream("application/json,application/yaml", typed=False).encoding == JSON
    assert caught.value.message.endswith(f"{JSON};stream=watch, {PROTOBUF};stream=watch")


@pytest.mark.rows("NEG-007")
def test_a_status_is_no_table() -> None:
    assert negotiation.for_status(f"{YAML};as=Table;v=v1;g=meta.k8s.io") is None
    wanted = negotiation.for_status(f"{YAML};as=Table;v=v1;g=meta.k8s.io,{JSON};pretty=1")
    assert wanted == negotiation.Wanted(pretty=True)


@pytest.mark.rows("NEG-004", "ERR-15")
@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", JSON),
        ("application/json", JSON),
        ("Application/JSON; charset=utf-8", JSON),
        ("application/yaml", YAML),
        ("application/vnd.kubernetes.protobuf", PROTOBUF),
        ("text/plain", None),
        ("application/x-www-form-urlencoded", None),
        (";;", None),
        ("json", None),
        ("application/json;", JSON),
        ("application/json; ", JSON),
        ("application/json;;", None),
        ("application/json;a=1;", JSON),
        ("application/json; x", None),
        ("application/json; a=", None),
        ("application/json; =b", None),
        ("application/json; a=b c", None),
        ("application/json; a=1 b=2", None),
        ("application/json; a=1; A=1", JSON),
        ("application/json; a=1; a=2", None),
        ("application/json; a=1; A=2", None),
        ('application/json ; a="b c"', JSON),
        (r'application/json; a="\"b"', JSON),
        ('application/json; a="b', None),
        ("application/json x", None),
        ("application/json/x", None),
        ("application/", None),
    ],
)
def test_content_type_selects_the_body_encoding(header: str, encoding: str | None) -> None:
    if encoding is not None:
        assert negotiation.body_encoding(header) == encoding
        return
    with pytest.raises(StatusError) as caught:
        negotiation.body_encoding(header)
    assert caught.value.code == 415


@pytest.mark.rows("SRV-012", "NEG-008", "WRI-007")
@pytest.mark.parametrize(
    ("header", "typed", "accepted"),
    [
        ("application/json-patch+json", False, True),
        ("application/merge-patch+json; charset=utf-8", False, True),
        ("application/apply-patch+yaml", False, True),
        ("application/strategic-merge-patch+json", False, False),
        ("application/strategic-merge-patch+json", True, True),
        ("application/yaml", False, False),
        ("", False, False),
    ],
)
def test_content_type_selects_the_patch_type(header: str, typed: bool, accepted: bool) -> None:
    if accepted:
        assert negotiation.patch_type(header, typed=typed) == header.partition(";")[0]
        return
    with pytest.raises(StatusError) as caught:
        negotiation.patch_type(header, typed=typed)
    assert caught.value.message.endswith(
        "include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


@pytest.mark.rows("NEG-005")
@pytest.mark.parametrize(
    ("values", "agent", "pretty"),
    [
        ((), "curl/8.1", True),
        ((), "Wget/1", True),
        ((), "Mozilla/5.0 (X11)", True),
        ((), "kubectl/v1.35", False),
        (("true",), "kubectl", True),
        *(((text,), "kubectl", True) for text in ("1", "t", "T", "TRUE", "True")),
        *(((text,), "curl", False) for text in ("tRUE", "yes", "0", "F", " ")),
        (("0",), "curl/8", False),
        (("maybe",), "curl/8", False),
        (("",), "curl/8", True),
    ],
)
def test_pretty_depends_on_query_and_user_agent(values: tuple[str, ...], agent: str, pretty: bool) -> None:
    assert negotiation.wants_pretty(values, agent) is pretty


@given(st.text(alphabet="application/json*;,=q 0.1xv-+", max_size=60))
def test_any_accept_header_is_parsed(header: str) -> None:
    found = negotiation.parse_accept(header)
    assert all(clause.type is not None for clause in found)
    qualities = [clause.quality for clause in found if "*" not in (clause.type, clause.subtype)]
    if len(qualities) == len(found):  # a wildcard may follow a specific type of lower quality
        assert qualities == sorted(qualities, reverse=True)


def test_long_headers_are_not_cached() -> None:
    for header, kept in (("a/b," * 10, True), ("a/b," * 1000, False)):
        found = negotiation.parse_accept(header)
        assert found == negotiation.parse_accept(header)
        assert (found is negotiation.parse_accept(header)) is kept
