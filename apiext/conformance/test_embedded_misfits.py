"""Embedded resources with wrong types: a table of kube-apiserver's answers.

The requests are creates, patches and applies.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, MERGE, Answer

ROWS = [Case(row) for row in read(Path(__file__).with_name("embedded_misfits.yaml"))]
EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
PARTS = {"type": "object", "properties": {"emb": EMBEDDED, "embs": {"type": "array", "items": EMBEDDED}}}
SCHEMA = {"type": "object", "properties": {"spec": PARTS, "status": PARTS}}


@pytest.fixture(scope="module")
def holders(request: pytest.FixtureRequest) -> Resource:
    """A kind with embedded resources in its spec and in its status."""
    api = request.getfixturevalue("server").client()
    return serve(api, schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}})


def told(answer: Answer) -> dict[str, Any]:
    """Return an answer in the form of a row of embedded_misfits.yaml."""
    found: dict[str, Any] = {"code": answer.status}
    if answer.status == 422:
        found["causes"] = sorted([cause["field"], cause["message"]] for cause in answer.json["details"]["causes"])
    return found


def send(holders: Resource, case: Case) -> Answer:
    name = f"h-{secrets.token_hex(4)}"
    body = {**holders.make(name), **(case.body or {})}
    if case.by == "create":
        return holders.api.post(holders.path(), body)
    holders.api.post(holders.path(), holders.make(name)).expect(201)
    place = f"{holders.path(name)}/status" if case.status else holders.path(name)
    kind = APPLY if case.by == "apply" else MERGE
    return holders.api.patch(place, body if case.by == "apply" else case.body, kind, fieldManager="me", force=True)


@pytest.mark.rows("MET-004", "MET-005", "ERR-09")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_invalid_embedded_resources(holders: Resource, case: Case) -> None:
    answer = send(holders, case)
    wanted = {key: case[key] for key in ("code", "causes") if key in case}
    assert told(answer) == wanted, answer.text
