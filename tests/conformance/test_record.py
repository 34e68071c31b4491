"""A new recording changes only the responses in the files."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from apiext.conformance.replay.recorded import NOT_YET, REFERENCE, load
from tests.conformance import record
from tests.support.processes import Server

GROUP = "subresources"


def test_lost_responses_are_recorded_again(reference_server: Server, tmp_path: Path) -> None:
    path = Path(shutil.copy(REFERENCE / f"{GROUP}.json", tmp_path))
    document = json.loads(path.read_text(encoding="utf-8"))
    steps = [step for recorded in document["scenarios"] if not recorded.get("differs") for step in recorded["steps"]]
    lost = [step for step in steps if "answer" in step and not step.get("differs")][::7]
    for step in lost:
        step["answer"] = {"status": 0}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    wanted = [scenario for scenario in load() if scenario.group == GROUP]
    found = asyncio.run(record.answers(reference_server.url, wanted))
    assert record.rewrite(path, found, "") == len(lost)
    before = json.loads((REFERENCE / f"{GROUP}.json").read_text(encoding="utf-8"))
    assert json.loads(path.read_text(encoding="utf-8")) == before


def test_equal_responses_do_not_change_the_file(tmp_path: Path) -> None:
    path = Path(shutil.copy(REFERENCE / f"{GROUP}.json", tmp_path))
    recorded = {
        scenario.id: [step.get("answer") for step in scenario.steps] for scenario in load() if scenario.group == GROUP
    }
    path.chmod(0o400)
    changed = path.stat().st_mtime_ns
    assert record.rewrite(path, recorded, "") == 0
    assert path.stat().st_mtime_ns == changed
    path.chmod(0o600)
    assert record.rewrite(path, recorded, "another v2") == 0
    assert json.loads(path.read_text(encoding="utf-8"))["reference"] == "another v2"


if NOT_YET.read_text(encoding="utf-8").strip().splitlines()[-1] != "{}":
    pytest.skip("steps that do not pass yet would be recorded", allow_module_level=True)
