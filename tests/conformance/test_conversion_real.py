"""Definitions and objects of real projects: a conversion webhook does not change reads.

The webhook changes only apiVersion. Reads equal those without a webhook.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from apiext.conformance.support.cases import read
from apiext.conformance.support.conversion_webhook import Webhook, answer, conversion, renamed
from apiext.conformance.support.definitions import establish
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until
from tests.support import shared
from tests.support.processes import Server

Scenario = dict[str, Any]
LEFT_OUT = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
DATA = shared.shared("data/real/answers", 60)


def scenarios() -> Iterator[Scenario]:
    """Yield recorded definitions with an object that was read in more than one version."""
    for path in sorted(DATA.glob("*.json")) if DATA is not None else []:
        seen: set[str] = set()
        for scenario in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
            versions = {step["path"].split("/")[3] for step in scenario["steps"] if step["what"] == "get"}
            if len(versions) > 1 and scenario["crd"] not in seen:
                seen.add(scenario["crd"])
                yield scenario


FOUND = list(scenarios())
IDS = [scenario["file"].removeprefix("definitions/") for scenario in FOUND]


@cache
def manifest(file: str) -> Any:
    """Return a manifest of the data."""
    assert DATA is not None
    return read(DATA.parent / file)


def body(step: dict[str, Any]) -> Any:
    """Return the object that a recorded step sent."""
    sent = copy.copy(manifest(step["body"]["object"]))
    sent["metadata"] = {
        name: value for name, value in sent["metadata"].items() if name not in ("namespace", "creationTimestamp")
    }
    if "name" in step["body"]:
        sent["metadata"]["name"] = step["body"]["name"]
        sent["metadata"].pop("generateName", None)
    return sent


def bare(document: Any) -> Any:
    """Return an object without metadata that differs between runs."""
    metadata = {name: value for name, value in document["metadata"].items() if name not in LEFT_OUT}
    return {**document, "metadata": metadata}


@pytest.fixture
def api(converting: Server) -> Client:
    """A client of the server."""
    return Client(converting.url)


def test_data_has_definitions_with_several_versions() -> None:
    if DATA is None:
        pytest.skip("the real definitions are not beside the checkout")
    assert len(FOUND) > 40


@pytest.mark.rows("VER-002", "VER-003", "VER-004")
@pytest.mark.parametrize("scenario", FOUND, ids=IDS)
def test_real_objects_equal_records_in_every_version(api: Client, hook: Webhook, scenario: Scenario) -> None:
    hook.answer = answer(renamed)
    wanted = copy.copy(manifest(scenario["steps"][0]["body"]["definition"]))
    wanted.pop("status", None)
    wanted["spec"] = {**wanted["spec"], "conversion": conversion(hook.client_config())}
    establish(api, wanted)
    asked = len(hook.requests())
    try:
        compared = sum(_compare(api, scenario, number) for number in range(len(scenario["steps"])))
    finally:
        path = f"{DEFINITIONS}/{scenario['crd']}"
        api.delete(path).expect(200)
        until(lambda: api.get(path).status == 404, "the definition is gone")
    assert compared > 1
    assert len(hook.requests()) > asked


def _compare(api: Client, scenario: Scenario, number: int) -> int:
    """Repeat a recorded step, and compare a read with the record.

    Return the number of compared responses.
    """
    step = scenario["steps"][number]
    if step["what"] == "create":
        collection = step["path"].partition("?")[0]
        if "/namespaces/" in collection:
            api.post("/api/v1/namespaces", {"metadata": {"name": collection.split("/namespaces/")[1].split("/")[0]}})
        found = api.post(step["path"], body(step))
        assert found.status == step["answer"]["status"], found.text[:500]
    elif step["what"] == "delete":
        api.delete(step["path"])
    elif step["what"] == "get":
        recorded = step["answer"]
        while "same" in recorded:
            recorded = scenario["steps"][recorded["same"]]["answer"]
        found = api.get(step["path"])
        if recorded["status"] in (200, 201):
            assert bare(found.expect(200)) == bare(recorded["body"])
            return 1
    return 0
