"""Load the recordings, the rows of BEHAVIOUR.md that they show, and the failing steps.

not_yet.yaml lists the failing steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from apiext.conformance.support.cases import read as read_yaml

HERE = Path(__file__).resolve().parents[1]
REFERENCE = HERE / "reference"
NOT_YET = HERE / "not_yet.yaml"
DECIDED = HERE / "decided.yaml"
CIRCUMSTANCES = HERE / "circumstances.yaml"
ROWS = HERE / "rows.yaml"

CANON = "uniq0000"
"""The label in the groups of the recordings; each run replaces it by a label of its own."""
USER_AGENT = "golden/1.0"
SERVER_MANAGER = "refserver"
"""The field manager with which the recorded server wrote the status of definitions."""
WITHOUT = "without "
LEFT_OUT = "left out"
"""Name of a property in a test report; its value is a step that was not compared, with the reason."""


@dataclass(frozen=True)
class Scenario:
    """One recorded scenario; ``id`` is ``group/name``."""

    group: str
    name: str
    steps: list[dict[str, Any]]
    differs: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name of the scenario in tests and lists."""
        return f"{self.group}/{self.name}"

    def piece_of(self, index: int) -> str:
        """Return the component that a step most likely tests.

        This is ``piece`` in rows.yaml, else the group of the scenario. In a scenario of the component ``server``, a
        step tests ``apply`` if it or an earlier step sends an apply patch.
        """
        own = str(self.notes.get("piece", self.group))
        applied = any("apply-patch" in str(step.get("headers")) for step in self.steps[: index + 1])
        return "apply" if own == "server" and applied else own

    def rows_of(self, index: int) -> list[str]:
        """Return the behaviour rows that a step shows.

        In rows.yaml, a scenario has rows, and patterns of step names with rows. The rows of the scenario apply only if
        no pattern matches the name of the step.
        """
        name = self.steps[index]["name"]
        found: list[str] = []
        for pattern, rows in self.notes.get("steps", {}).items():
            if re.search(pattern, name):
                found += [row for row in rows if row not in found]
        return found or list(self.notes.get("rows", []))

    def rows(self, not_yet: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Return the behaviour rows that the compared steps show.

        A row is left out if a step in ``not_yet`` shows it, too, or if it is the row of an excluded field.
        """
        shown: set[str] = set()
        open_ = {entry["row"] for key, entry in not_yet.items() if key.startswith(WITHOUT)}
        for index, step in enumerate(self.steps):
            if step.get("answer") is None or self.excuse(index):
                continue
            (open_ if f"{self.id}/{index}" in not_yet else shown).update(self.rows_of(index))
        return sorted(shown - open_)

    def excuse(self, index: int) -> str | None:
        """Return the recorded reason why a server may answer a step differently.

        Return None if there is none.
        """
        return self.steps[index].get("differs") or self.differs


def load() -> Iterator[Scenario]:
    """Yield every recorded scenario, in the order of the files."""
    notes = read_yaml(ROWS)
    for path in sorted(REFERENCE.glob("*.json")):
        for recorded in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
            known = notes.get(path.stem, {}).get(recorded["name"], {})
            yield Scenario(path.stem, recorded["name"], recorded["steps"], recorded.get("differs"), known)


@cache
def _decisions() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_yaml(DECIDED)
    return found


def decision(status: int, text: str) -> dict[str, Any] | None:
    """Return the row of decided.yaml for an answer with this status and text.

    Return None if there is none.
    """
    if status not in {one["status"] for one in _decisions()}:
        return None
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return None
    return next((one for one in _decisions() if status == one["status"] and re.search(one["message"], message)), None)


def decided(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that this server should give in place of a recorded answer.

    If decided.yaml lists the recorded answer, the result has the code and reason of that file. Otherwise it is the
    recorded answer.
    """
    body = answer.get("body")
    message = body.get("message") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(message, str):
        return answer
    for one in _decisions():
        if answer["status"] == one["status"] and re.search(one["message"], message):
            status = {**body, "code": one["ours"], "reason": one["reason"]}
            return {**answer, "status": one["ours"], "body": status}
    return answer


class Circumstance(NamedTuple):
    """A row of circumstances.yaml: steps that some servers cannot answer as recorded.

    ``where`` is the fact that these servers have in common.
    """

    steps: re.Pattern[str]
    where: str
    why: str


@cache
def circumstances() -> list[Circumstance]:
    """Return the rows of circumstances.yaml."""
    rows = read_yaml(CIRCUMSTANCES)
    return [Circumstance(re.compile(row["steps"]), row["where"], row["why"]) for row in rows]


def not_yet() -> dict[str, dict[str, str]]:
    """Return the steps that do not pass: name → ``{row, piece}``.

    A name is ``group/scenario/step-index`` or ``without FIELD``.
    """
    return read_yaml(NOT_YET) or {}


def compatibility() -> dict[str, str]:
    """Return ``# upstream:`` tag → name of the recorded step that shows the behaviour.

    A key is the text of a tag in the code.
    """
    found: dict[str, str] = read_yaml(HERE / "upstream.yaml")
    return found


def left_out(entries: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the fields that not_yet.yaml excludes from every comparison."""
    return frozenset(key.removeprefix(WITHOUT) for key in entries if key.startswith(WITHOUT))


def write_not_yet(entries: Mapping[str, Mapping[str, str]]) -> None:
    """Write not_yet.yaml in the order of the recordings, with one line for each entry."""
    lines = [
        "# Steps of the recorded scenarios that do not pass yet: group/scenario/step-index, their rows and pieces.",
        "# A step that differs and is not in this list fails the run, and so does a step in this list that passes.",
        "# `without FIELD` excludes all fields with this name from all comparisons, at any depth.",
        "# `python -m tests.conformance.shrink` removes the steps that pass now.",
    ]
    lines += [
        f"{json.dumps(key)}: {{row: {json.dumps(entry['row'])}, piece: {json.dumps(entry['piece'])}}}"
        for key, entry in entries.items()
    ]
    NOT_YET.write_text("\n".join(lines if entries else [*lines, "{}"]) + "\n", encoding="utf-8")
