"""Invalid expressions get upstream's messages.

Valid expressions are printed and parsed to the same nodes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiext.cel import recovery
from apiext.cel.ast import Entry, Node
from apiext.cel.base import base
from apiext.conformance.support.cases import Case, case_name, load
from tests.support.shared import shared
from tests.unit.cel.printer import parse_text, text_of

pytestmark = pytest.mark.rows("CEL-001")
MACROS = base().macros


def shape(part: object) -> object:
    """Return nodes as comparable values, without their ids."""
    if isinstance(part, (list, tuple)):
        return tuple(shape(inner) for inner in part)
    if isinstance(part, (Node, Entry)):
        slots = [slot for kind in type(part).__mro__ for slot in sorted(getattr(kind, "__slots__", ())) if slot != "id"]
        return (type(part).__name__, *(shape(getattr(part, slot)) for slot in slots))
    return (type(part).__name__, repr(part))


def syntax_errors(text: str) -> str:
    parsed, issues = parse_text(text, MACROS)
    assert (parsed is None) == bool(issues)
    return issues.text()


def test_lookahead_after_a_syntax_error_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    close = recovery._Parser.close

    def noted(self: recovery._Parser, configs: list[Any], decision: recovery.State) -> list[Any]:
        found = close(self, configs, decision)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(recovery._Parser, "close", noted)
    assert syntax_errors("a{b: [c.d")
    assert max(sizes) > 5
    monkeypatch.setattr("apiext.cel.limits.MAX_LOOKAHEAD", 5)
    sizes.clear()
    assert syntax_errors("a{b: [c.d")
    assert max(sizes) == 5


def test_syntax_errors_equal_recorded_messages() -> None:
    path = shared("data/cel/syntax-errors.json", 1335)
    if path is None:
        pytest.skip("no recorded messages")
    wrong = [text for text, message in json.loads(path.read_text()) if syntax_errors(text) != message]
    assert not wrong


@pytest.mark.parametrize("case", load(__file__, "syntax"), ids=case_name)
def test_syntax_error_messages(case: Case) -> None:
    text = case.text * case.times if case.times else case.text
    shown = syntax_errors(text + (case.then or "") * (case.times or 0))
    assert shown.startswith(case.error or "") if case.error else shown == ""


def expressions() -> list[str]:
    found: set[str] = set()
    rules, spec = shared("data/cel/kubernetes-rules.jsonl", 0), shared("data/cel/cel-spec.json", 0)
    if rules is not None:
        found |= {json.loads(line)["rule"] for line in rules.read_text().splitlines()}
    if spec is not None:
        cases: list[dict[str, Any]] = json.loads(spec.read_text())
        found |= {case["expr"] for case in cases}
    return sorted(found)


def test_printed_expressions_parse_to_the_same_nodes() -> None:
    for text in expressions():
        parsed, _ = parse_text(text, MACROS)
        if parsed is None:
            continue
        again, issues = parse_text(text_of(parsed), MACROS)
        assert again is not None, (text, text_of(parsed), issues.text())
        assert shape(again.root) == shape(parsed.root), text
