"""Events in v1 and events.k8s.io/v1, and their errors and Tables.

The expected answers are a table of kube-apiserver's answers.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import TABLE, Client

ROWS = [Case(row) for row in read(Path(__file__).with_name("builtin_events.yaml"))]
ABOUT = {"kind": "Widget", "namespace": "default", "name": "w"}
OLD = {"involvedObject": ABOUT, "reason": "Made", "message": "done", "type": "Normal"}
NEW = {
    "regarding": ABOUT, "reason": "Made", "note": "done", "type": "Normal", "action": "Make",
    "eventTime": "2026-11-21T03:05:11.000000Z", "reportingController": "example.com/maker", "reportingInstance": "one",
}  # fmt: skip
VERSIONS = {"v1": ("/api/v1", OLD), "events.k8s.io/v1": ("/apis/events.k8s.io/v1", NEW)}


def changed(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {name: spelled(value) for name, value in {**document, **change}.items() if value is not None}


def spelled(value: Any) -> Any:
    """Replace texts such as "x*9" (nine times x) and "9 years" in a value, also inside mappings.

    "9 years" becomes the time 9 * 365 + 20 days ago; "9 years, exactly" becomes this time with microseconds.
    """
    if isinstance(value, dict):
        return {name: spelled(member) for name, member in value.items()}
    text = value if isinstance(value, str) else ""
    if found := re.fullmatch(r"(.)\*(\d+)", text):
        return found[1] * int(found[2])
    if found := re.fullmatch(r"(\d+) years(, exactly)?", text):
        then = datetime.now(UTC) - timedelta(days=365 * int(found[1]) + 20)
        return then.strftime("%Y-%m-%dT%H:%M:%S" + (".%fZ" if found[2] else "Z"))
    return value


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize("case", [row for row in ROWS if not row.cells], ids=case_name)
def test_errors_of_an_event(api: Client, case: Case) -> None:
    root, body = VERSIONS[case.version]
    path, name = f"{root}/namespaces/{case.namespace or 'default'}/events", f"e-{secrets.token_hex(4)}"
    answer = api.post(path, {"metadata": {"name": name}, **changed(body, case.body or {})})
    if case.through:
        path = f"{VERSIONS[case.through][0]}/namespaces/default/events"
        answer = api.put(f"{path}/{name}", api.get(f"{path}/{name}").expect(200))
    if case.change:
        answer = api.put(f"{path}/{name}", changed(answer.expect(200 if case.through else 201), case.change))
    found = (answer.json.get("details") or {}).get("causes", []) if answer.status == 422 else None
    assert (found and [[cause["field"], cause["message"]] for cause in found]) == case.causes, answer.text
    assert answer.status in (200, 201, 422)
    api.delete(f"{path}/{name}")


@pytest.mark.rows("TAB-002")
@pytest.mark.parametrize("case", [row for row in ROWS if row.cells], ids=case_name)
def test_table_of_an_event(api: Client, case: Case) -> None:
    root, body = VERSIONS[case.version]
    name = f"e-{secrets.token_hex(4)}"
    api.post(f"{root}/namespaces/default/events", {"metadata": {"name": name}, **changed(body, case.body or {})})
    for each, _ in VERSIONS.values():
        table = api.get(f"{each}/namespaces/default/events/{name}", {"Accept": TABLE}).expect(200)
        columns = [column["name"] for column in table["columnDefinitions"]]
        assert dict(zip(columns, table["rows"][0]["cells"], strict=True)) == {"Name": name, **case.cells}
    api.delete(f"{root}/namespaces/default/events/{name}").expect(200)
