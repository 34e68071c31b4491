"""The examples in Kubernetes' documentation on custom resources, used literally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import Resource, definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Answer, Client

CASES: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("documented_examples.yaml"))


def schema(case: dict[str, Any]) -> dict[str, Any]:
    root = case.get("root") or {"type": "object", "properties": {"spec": case["spec"]}}
    return {"openAPIV3Schema": root}


def written(widgets: Resource, name: str, given: dict[str, Any]) -> tuple[Answer, dict[str, Any]]:
    """Create an object, and update it if the example does; return (last answer, expected spec)."""
    body = {**widgets.make(name), "spec": given["give"], **({"status": given["status"]} if "status" in given else {})}
    answer = widgets.api.post(widgets.path(), body)
    if "then" in given:
        answer.expect(201)
        body = {**answer.json, "spec": given["then"]}
        answer = widgets.api.request("PUT", widgets.path(name), body)
    return answer, given.get("becomes", body["spec"])


def judged(case: dict[str, Any]) -> list[pytest.MarkDecorator]:
    """Return the marks of an example for pytest.

    The marks are the behaviour rows that the example tests, and the reason if kube-apiserver differs.
    """
    marks = [pytest.mark.rows(*case["rows"])]
    return [*marks, pytest.mark.differs(case["differs"])] if "differs" in case else marks


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"], marks=judged(case)) for case in CASES])
def test_example(api: Client, case: dict[str, Any]) -> None:
    if "refused" in case:
        message = api.post(DEFINITIONS, definition(fresh_group(), schema=schema(case))).expect(422)["message"]
        assert [text for text in case["refused"] if text not in message] == [], message
        return
    widgets = serve(api, schema=schema(case))
    for number, given in enumerate(case["objects"]):
        answer, wanted = written(widgets, f"example-{number}", given)
        if "says" in given:
            message = answer.expect(422)["message"]
            assert [text for text in given["says"] if text not in message] == [], message
        else:
            assert answer.status in (200, 201), answer.raw
            assert widgets.api.get(widgets.path(f"example-{number}")).expect(200)["spec"] == wanted
