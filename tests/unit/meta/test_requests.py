"""URLs, options and selectors: tables in cases/, limits, and comparison with a simple model."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.cases import Case, case_name, load
from apiext.conformance.support.waiting import prompt
from apiext.meta import limits
from apiext.meta.options import DeleteOptions, ListOptions, OptionsError, WriteOptions
from apiext.meta.requestinfo import parse, truth
from apiext.meta.selectors import FieldSelector, LabelSelector, SelectorError


@pytest.mark.rows("SRV-001", "AUT-004", "RV-015", "RV-016", "SEL-006")
@pytest.mark.parametrize("case", load(__file__, "requestinfo"), ids=case_name)
def test_request_info_is_parsed_from_the_url(case: Case) -> None:
    info = parse(case.method or "GET", case.path, case.query or {})
    found = info._asdict() | {"rest": list(info.rest)}
    assert {key: found[key] for key in case.then} == case.then
    assert info.path == case.path


@pytest.mark.rows("SEL-005")
@pytest.mark.parametrize("case", load(__file__, "labels"), ids=case_name)
def test_label_selectors(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(SelectorError) as refused:
            LabelSelector.parse(case.text)
        assert str(refused.value) == case.error
        return
    selector = LabelSelector.parse(case.text)
    assert selector.empty == (not case.text)
    assert all(selector.matches(labels) for labels in case.matches)
    assert not any(selector.matches(labels) for labels in case.misses or ())


@pytest.mark.rows("SEL-001")
@pytest.mark.parametrize("case", load(__file__, "fields"), ids=case_name)
def test_field_selectors(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(SelectorError) as refused:
            FieldSelector.parse(case.text)
        assert str(refused.value) == case.error
        return
    selector = FieldSelector.parse(case.text)
    assert selector.terms == tuple(tuple(term) for term in case.terms)


def test_selector_document_equals_its_text_form() -> None:
    document = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]},
            {"key": "f", "operator": "NotIn", "values": ["g"]},
            {"key": "h", "operator": "Exists"},
            {"key": "i", "operator": "DoesNotExist"},
        ],
    }
    text = LabelSelector.parse("a=b,c in (d,e),f notin (g),h,!i")
    assert LabelSelector.from_document(document) == text
    assert LabelSelector.from_document({}).empty
    with pytest.raises(SelectorError, match="is not a valid label selector operator"):
        LabelSelector.from_document({"matchExpressions": [{"key": "a", "operator": "Near"}]})
    with pytest.raises(SelectorError, match="values set can't be empty"):
        LabelSelector.from_document({"matchExpressions": [{"key": "a", "operator": "In"}]})


WORDS = st.sampled_from(["a", "b", "x.io/y", "in", "5", "-3"])
LABELS = st.dictionaries(st.sampled_from(["a", "b", "x.io/y"]), st.sampled_from(["", "a", "b", "5", "10"]))
TERMS = st.one_of(
    st.tuples(st.sampled_from(["a", "b", "x.io/y"]), st.sampled_from(["=", "!="]), st.sampled_from(["", "a", "5"])),
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from(["in", "notin"]), st.lists(st.sampled_from(["a", "5"]), min_size=1)
    ),
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["!", ""]), st.just("")),
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["<", ">"]), st.sampled_from(["5", "7"])),
)


def term_text(key: str, sign: str, value: Any) -> str:
    if sign == "!":
        return f"!{key}"
    return f"{key} {sign} ({', '.join(value)})" if isinstance(value, list) else f"{key}{sign}{value}"


def term_holds(labels: dict[str, str], key: str, sign: str, value: Any) -> bool:
    has, found = key in labels, labels.get(key, "")
    if sign in ("<", ">"):
        return found.isdigit() and (int(found) < int(value) if sign == "<" else int(found) > int(value))
    held = {"=": has and found == value, "!=": not (has and found == value), "!": not has, "": has}
    return held.get(sign, (has and found in value) == (sign == "in"))


@given(st.lists(TERMS, max_size=4), LABELS)
def test_label_selectors_match_like_a_simple_model(terms: list[tuple[str, str, Any]], labels: dict[str, str]) -> None:
    selector = LabelSelector.parse(",".join(term_text(*term) for term in terms))
    assert selector.matches(labels) == all(term_holds(labels, *term) for term in terms)


@given(
    st.from_regex(r"[aB1./-]{1,6}==?[aB1._-]{0,6}", fullmatch=True) | st.text("aB1./-=", max_size=9), st.integers(1, 70)
)
def test_fast_path_of_label_selectors_equals_the_slow_path(text: str, times: int) -> None:
    for selector in (text, text.replace("a", "a" * times)):
        found: list[Any] = []
        for same in (selector, f"{selector} "):  # spaces are ignored, and parsed on another path
            try:
                found.append(LabelSelector.parse(same))
            except SelectorError as error:
                found.append(str(error))
        assert found[0] == found[1]


@given(st.text("ab=!(),<> in\\é", max_size=12))
def test_selector_parsing_raises_only_selector_error(text: str) -> None:
    for parse_text in (LabelSelector.parse, FieldSelector.parse):
        try:
            parse_text(text)
        except SelectorError:
            continue


@given(st.text("a,=!\\\\", max_size=6))
def test_escaped_field_selector_values_are_unescaped(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    assert FieldSelector.parse(f"f={escaped}").terms == (("f", "=", value),)


def test_selectors_over_the_length_limit_are_refused() -> None:
    before = time.perf_counter()
    long = "a in (" + ",".join("b" for _ in range(30_000)) + ")"
    assert LabelSelector.parse(long).matches({"a": "b"})
    for text in ("a=b," * 100_000, "a in (" + "b," * 500_000 + ")", "(" * 100_000):
        with pytest.raises(SelectorError, match=str(limits.MAX_LINE)):
            LabelSelector.parse(text)
        with pytest.raises(SelectorError, match=str(limits.MAX_LINE)):
            FieldSelector.parse(text)
    prompt(time.perf_counter() - before, 2)


@pytest.mark.rows("RV-004", "RV-014")
@pytest.mark.parametrize("case", load(__file__, "options"), ids=case_name)
def test_list_options_are_validated(case: Case) -> None:
    if case.refused is not None:
        with pytest.raises(OptionsError) as refused:
            ListOptions.parse(case.query)
        assert str(refused.value) == case.refused
        return
    options = ListOptions.parse(case.query)
    assert [str(error) for error in options.errors()] == case.errors
    assert str(options.kind) == "ListOptions.meta.k8s.io"


@pytest.mark.rows("RV-016")
def test_list_options_are_parsed() -> None:
    query = {
        "labelSelector": ["a=b", "ignored"],
        "fieldSelector": ["c=d"],
        "watch": ["true"],
        "allowWatchBookmarks": ["1"],
        "resourceVersion": ["5"],
        "resourceVersionMatch": ["Exact"],
        "timeoutSeconds": ["7"],
        "limit": ["9"],
        "continue": ["t"],
        "sendInitialEvents": ["0"],
    }
    assert ListOptions.parse(query) == ListOptions("a=b", "c=d", True, True, "5", "Exact", 7, 9, "t", False)
    assert ListOptions.parse({}) == ListOptions()
    assert ListOptions.parse({"limit": ["-1"]}).limit == 0
    assert [truth(values) for values in (None, [], ["0"], ["FALSE"], ["x"], [""])] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]


WRITES: list[tuple[str, dict[str, list[str]], bool, list[str]]] = [
    ("CreateOptions", {}, False, []),
    ("CreateOptions", {"dryRun": ["All"], "fieldManager": ["m"], "fieldValidation": ["Warn"]}, False, []),
    ("PatchOptions", {"force": ["true"], "fieldManager": ["m"]}, True, []),
    ("PatchOptions", {"force": ["true"]}, False, ["force: Forbidden: may not be specified for non-apply patch"]),
    ("PatchOptions", {}, True, ["fieldManager: Required value: is required for apply patch"]),
    ("CreateOptions", {"force": ["true"]}, False, []),
    ("UpdateOptions", {"dryRun": ["x"]}, False, ['dryRun: Unsupported value: ["x"]: supported values: "All"']),
    ("UpdateOptions", {"fieldManager": ["m" * 129]}, False, ["fieldManager: Too long: may not be more than 128 bytes"]),
    (
        "CreateOptions",
        {"fieldManager": ["é\a"]},
        False,
        ['fieldManager: Invalid value: "é\\a": invalid character U+0007 (at position 2)'],
    ),
    (
        "PatchOptions",
        {"fieldValidation": ["zzz"]},
        False,
        ['fieldValidation: Unsupported value: "zzz": supported values: "", "Ignore", "Strict", "Warn"'],
    ),
]


@pytest.mark.rows("WRI-011", "WRI-012")
@pytest.mark.parametrize(("name", "query", "apply", "errors"), WRITES)
def test_write_options_are_validated(name: str, query: dict[str, list[str]], apply: bool, errors: list[str]) -> None:
    options = WriteOptions.parse(name, query)
    assert [str(error) for error in options.errors(apply=apply)] == errors
    assert options.dry_run == ("dryRun" in query)
    assert str(options.kind) == f"{name}.meta.k8s.io"


def test_errors_of_an_unprintable_field_manager_are_limited() -> None:
    began = time.process_time()
    found = WriteOptions.parse("CreateOptions", {"fieldManager": ["\1" * 5000]}).errors()
    prompt(time.process_time() - began, 2)  # quoting each character in a separate error would take half a minute
    assert [str(error) for error in found[:1]] == ["fieldManager: Too long: may not be more than 128 bytes"]
    assert found[2].body.endswith(": invalid character U+0001 (at position 1)")
    assert sum(len(error.body) for error in found) < 2 * limits.MAX_FIELD_ERROR_BYTES
    assert len(WriteOptions.parse("CreateOptions", {"fieldManager": ["\1" * 100]}).errors()) == 100


@pytest.mark.rows("WRI-018", "WRI-019", "WRI-020")
def test_delete_options_are_parsed_from_query_and_body() -> None:
    query = {
        "dryRun": ["All"],
        "gracePeriodSeconds": ["5"],
        "orphanDependents": ["true"],
        "propagationPolicy": ["Orphan"],
    }
    body = {
        "kind": "DeleteOptions",
        "dryRun": ["All"],
        "gracePeriodSeconds": 5,
        "orphanDependents": True,
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "unknown": 1,
    }
    both = DeleteOptions(("All",), 5, None, None, True, "Orphan")
    assert DeleteOptions.parse(query) == both
    found = DeleteOptions.from_document(body)
    assert (found.uid, found.resource_version, found.dry_run) == ("u", "7", True)
    assert [str(error) for error in found.errors()] == [
        'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set'
    ]
    assert DeleteOptions.from_document({"preconditions": None, "dryRun": None}) == DeleteOptions.parse({})
    wrong = DeleteOptions(propagation_policy="Sideways").errors()
    supported = '"Foreground", "Background", "Orphan", "nil"'
    assert [str(error) for error in wrong] == [
        f'propagationPolicy: Unsupported value: "Sideways": supported values: {supported}'
    ]


BODIES: list[tuple[Any, str]] = [
    ([], "json: cannot unmarshal array into Go value of type v1.DeleteOptions"),
    (
        {"gracePeriodSeconds": "x"},
        "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
    ),
    (
        {"gracePeriodSeconds": 1.5},
        "json: cannot unmarshal number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
    ),
    ({"dryRun": "All"}, "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string"),
    ({"dryRun": [1]}, "json: cannot unmarshal number into Go struct field DeleteOptions.dryRun of type string"),
    (
        {"preconditions": {"uid": 1}},
        "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID",
    ),
]


@pytest.mark.rows("WRI-020")
@pytest.mark.parametrize(("body", "error"), BODIES)
def test_delete_options_of_wrong_types_are_refused(body: Any, error: str) -> None:
    with pytest.raises(OptionsError) as refused:
        DeleteOptions.from_document(body)
    assert str(refused.value) == error


def test_a_url_is_parsed_in_microseconds() -> None:
    path = "/apis/stable.example.com/v1/namespaces/default/crontabs/my-new-cron-object"
    rounds = 2_000
    best = min(_seconds(rounds, path) for _ in range(5)) / rounds
    assert best < 30e-6, "ten times what is wanted of an idle machine"


def _seconds(rounds: int, path: str) -> float:
    before = time.perf_counter()
    for _ in range(rounds):
        parse("GET", path, {})
    return time.perf_counter() - before
