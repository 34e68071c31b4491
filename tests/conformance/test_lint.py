"""``apiext crd lint`` prints the errors of the reference server for the same definitions.

These errors were recorded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.replay import recorded
from tests.support import shared
from tests.support.shared import ROOT

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FORMAT = 'unrecognized format "'


def recorded_creates() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield (step name, definition, response) of recorded creates that reached validation."""
    for scenario in recorded.load():
        for index, step in enumerate(scenario.steps):
            answer = step.get("answer") or {}
            asked = step.get("method") == "POST" and step["path"].partition("?")[0] == DEFINITIONS
            body = step.get("body")
            plain = asked and isinstance(body, dict) and body.get("kind") == "CustomResourceDefinition"
            if not plain or "field" in step["path"] or not body.get("apiVersion") or "@LONG" in json.dumps(body):
                continue  # other parameters, another kind, or a placeholder of the recorder (@LONG)
            if "managedFields" in body.get("metadata", {}):
                continue  # manifests have no managedFields
            if answer.get("status") in (201, 422) and not scenario.excuse(index):
                yield f"{scenario.id}/{step['name']}", body, answer


def lint(*files: Path) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "apiext", "crd", "lint", "--output=json", *map(str, files)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert not ended.stderr, ended.stderr
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()]


def outcome(answer: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the sorted errors, and the sorted warnings, of a recorded response."""
    causes = (answer["body"].get("details") or {}).get("causes") or [] if answer["status"] == 422 else []
    errors = sorted(f"{it.get('field', '')}: {it['message']}" for it in causes)
    given = answer.get("headers", {}).get("Warning") or []
    warnings = [given] if isinstance(given, str) else given
    return errors, sorted(text.removeprefix('299 - "').removesuffix('"').replace('\\"', '"') for text in warnings)


@pytest.mark.rows("CRD-009", "CRD-020", "CRD-023", "SCH-001", "STR-001", "DEF-001", "CEL-012", "UPD-009")
def test_lint_prints_recorded_errors_and_warnings(tmp_path: Path) -> None:
    expected = {}
    for number, (step, body, answer) in enumerate(recorded_creates()):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(body))
        expected[str(file)] = (step, outcome(answer))
    code, findings = lint(*map(Path, expected))
    found: dict[str, tuple[list[str], list[str]]] = {file: ([], []) for file in expected}
    for it in findings:
        text = f"{it['field']}: {it['message']}" if it["severity"] == "error" else it["message"]
        text = re.sub(r"selfType\d+", "selfType<n>", text)
        found[it["file"]][it["severity"] == "warning"].append(text)
    assert code == 1
    assert len(expected) > 400
    different = {
        step: (sorted(found[file][0]), wanted[0])
        for file, (step, wanted) in expected.items()
        if sorted(found[file][0]) != wanted[0]
    }
    assert not different, f"{len(different)} of {len(expected)}: {list(different.items())[:3]}"
    warned = {
        step: (sorted(found[file][1]), wanted[1])
        for file, (step, wanted) in expected.items()
        if sorted(found[file][1]) != wanted[1]
    }
    assert not warned, f"{len(warned)} of {len(expected)}: {list(warned.items())[:3]}"


def test_definitions_of_real_projects_are_valid() -> None:
    folder = shared.shared("data/real/definitions")
    if folder is None:
        pytest.skip("the real definitions are not beside the checkout")
    files = sorted(folder.glob("*/*.yaml"))[:25]
    began = time.monotonic()
    code, findings = lint(*files)
    print(f"{len(files)} definitions in {time.monotonic() - began:.2f} s")
    assert (code, [it for it in findings if it["severity"] == "error"]) == (0, [])
