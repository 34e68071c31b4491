"""Sources of lists, and the contents of continue tokens: tables in cases/."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.cases import Case, case_name, load
from apiext.storage import continuation
from apiext.storage.continuation import BadToken, Continuation
from apiext.storage.readplan import ListQuery, ReadPlan, parse_revision, plan


@pytest.mark.rows("RV-003", "RV-005", "RV-006", "RV-007")
@pytest.mark.parametrize("case", load(__file__, "readplan"), ids=case_name)
def test_list_query_gives_read_plan(case: Case) -> None:
    ask = dict(case.ask)
    if "token" in ask:
        revision, start = ask["token"]
        ask["token"] = continuation.encode(start, revision)
    if case.error is None:
        assert plan(ListQuery(**ask)) == ReadPlan(**case.plan)
        return
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is checked below
        plan(ListQuery(**ask))
    assert str(refused.value) == case.error


@pytest.mark.rows("RV-005", "RV-006")
@pytest.mark.parametrize("case", load(__file__, "continuation"), ids=case_name)
def test_decode_of_continue_tokens(case: Case) -> None:
    token = case.token or base64.urlsafe_b64encode(case["json"].encode()).decode().rstrip("=")
    if case.then is not None:
        assert continuation.decode(token) == Continuation(*case.then)
        return
    with pytest.raises(BadToken) as refused:
        continuation.decode(token)
    assert str(refused.value).startswith("invalid continue token: continue key is not valid: ")
    assert case.error in str(refused.value)


@pytest.mark.rows("RV-005")
def test_continue_token_is_json_of_upstream() -> None:
    token = continuation.encode("ns/a\0", 7)
    assert "=" not in token
    text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert text == b'{"v":"meta.k8s.io/v1","rv":7,"start":"/ns/a\\u0000"}'
    token = continuation.encode("ns/a\0", -1, cached=False)
    text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert text == b'{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/a\\u0000"}'
    assert continuation.decode(token).start == "ns/a\0"


@given(st.from_regex(r"[a-z0-9.-]{0,5}[a-z0-9](/[a-z0-9]([a-z0-9.-]{0,5}[a-z0-9])?)?", fullmatch=True), st.integers(1))
def test_continue_token_decodes_to_its_input(start: str, revision: int) -> None:
    revision %= 2**63 - 1
    assert continuation.decode(continuation.encode(start + "\0", revision + 1)) == (start + "\0", revision + 1)


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_decode_of_any_string_raises_only_bad_token(token: str) -> None:
    with contextlib.suppress(BadToken):
        assert continuation.decode(token).start


def test_parse_revision() -> None:
    assert (parse_revision(""), parse_revision("0"), parse_revision("12")) == (0, 0, 12)
