"""Parts of a storage migration that need no server."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from apiext.crd.migration import lost_fields, plan_of, remaining
from apiext.tools.migration import Pace, path_of
from apiext.tools.progress import Bar, Lines


def definition(versions: list[dict[str, Any]], stored: list[str], strategy: str = "None") -> dict[str, Any]:
    names = {"plural": "foos", "kind": "Foo"}
    return {
        "metadata": {"name": "foos.example.com", "uid": "u", "generation": 3},
        "spec": {"group": "example.com", "names": names, "versions": versions, "conversion": {"strategy": strategy}},
        "status": {"storedVersions": stored, "acceptedNames": names},
    }


def version(name: str, schema: str = "same", *, served: bool = True, storage: bool = False) -> dict[str, Any]:
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {"description": schema}}}


@pytest.mark.rows("VER-014")
def test_plan_names_pending_and_compared_versions() -> None:
    three = [version("v1", "old"), version("v2"), version("v3", storage=True)]
    plan = plan_of(definition(three, ["v1", "v2", "v3"]))
    assert (plan.storage, plan.pending, plan.compared) == ("v3", ["v1", "v2"], ("v1",))
    assert path_of(plan, "v3", "ns", "a") == "/apis/example.com/v3/namespaces/ns/foos/a"
    assert path_of(plan, "v3") == "/apis/example.com/v3/foos"
    assert plan_of(definition(three, ["v1", "v3"], "Webhook")).compared == ()
    assert plan_of(definition(three, ["v3"])).pending == []
    assert plan.served
    assert not plan_of(definition([version("v1"), version("v2", storage=True, served=False)], ["v1", "v2"])).served


def test_plan_distinguishes_booleans_and_numbers() -> None:
    versions = [version("v1"), version("v2", storage=True)]
    for one, default in zip(versions, (1, True), strict=True):
        one["schema"]["openAPIV3Schema"]["default"] = default
    assert plan_of(definition(versions, ["v1", "v2"])).compared == ("v1",)
    assert lost_fields({"spec": {"a": 1, "b": [True], "c": 1}}, {"spec": {"a": True, "b": [1.0], "c": 1}}) == [
        "spec.a",
        "spec.b[0]",
    ]


def test_stored_versions_are_kept_if_definition_changed() -> None:
    there = definition([version("v1"), version("v2", storage=True)], ["v1", "v2"])
    plan = plan_of(there)
    assert remaining(plan, there) == ["v2"]
    for changed in ({"uid": "another"}, {"generation": 4}):
        assert remaining(plan, {**there, "metadata": {**there["metadata"], **changed}}) is None


def test_lost_fields_names_removed_and_changed_fields() -> None:
    before = {
        "apiVersion": "g/v1",
        "kind": "Foo",
        "metadata": {"name": "a"},
        "spec": {"kept": 1, "gone": {"deep": 1}, "list": [{"a": 1, "b": 2}, {"a": 3}], "other": [1, 2], "null": None},
    }
    after = {
        "apiVersion": "g/v2",
        "kind": "Foo",
        "metadata": {},
        "spec": {"kept": 1, "new": 2, "list": [{"a": 1}, {"a": 3}], "other": [1], "null": None},
    }
    assert lost_fields(before, after) == ["spec.gone", "spec.list[0].b", "spec.other"]
    assert lost_fields(before, before) == []
    assert lost_fields({"spec": 1}, {"spec": "1"}) == ["spec"]


def test_pace_delays_after_several_turns() -> None:
    pace = Pace(1000)
    for _ in range(5):
        pace.wait()
    assert pace._turns.take(0.0) > 0
    Pace(0).wait()


def test_json_lines_limit_progress_events() -> None:
    out = io.StringIO()
    lines = Lines(out)
    lines.event("started", resource="r", storage="v2")
    for done in range(100):
        lines.progress("r", done, 100)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert told[0] == {"event": "started", "resource": "r", "storage": "v2"}
    assert told[1] == {"event": "progress", "resource": "r", "done": 0, "total": 100}
    assert len(told) == 2


def test_progress_bar_overwrites_its_line() -> None:
    out = io.StringIO()
    bar = Bar(out)
    bar.event("started", resource="r", storage="v2")
    bar.progress("r", 0, 2)
    bar.progress("r", 1, 2)  # too soon to be drawn
    bar.progress("r", 2, 2)
    bar.event("migrated", resource="r", storedVersions=["v2"])
    first, *drawn, last, end = out.getvalue().replace("\r\x1b[K", "\n").split("\n")
    assert first == "r: started: storage v2"
    assert [text.split("]")[0] for text in drawn if text] == ["r [" + "." * 30, "r [" + "#" * 30]
    assert (last, end) == ("r: migrated: storedVersions v2", "")
