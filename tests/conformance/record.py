"""Send the requests of the recordings to a kube-apiserver again, and store its responses.

python -m tests.conformance.record --server URL [--only TEXT] [--reference NAME]

README.md beside the recordings describes the server. If only varying parts of a response differ, the recorded response
stays. Read the diff before you commit it: each change comes from the server, or is an error of the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from apiext.conformance.replay.compare import SIDE_BY_SIDE, differences
from apiext.conformance.replay.normalise import normalise
from apiext.conformance.replay.play import play, session
from apiext.conformance.replay.recorded import REFERENCE, Scenario, load


async def answers(url: str, scenarios: list[Scenario]) -> dict[str, list[dict[str, Any] | None]]:
    """Play the scenarios against a server; return scenario id → the response to each step."""
    found: dict[str, list[dict[str, Any] | None]] = {}
    turns = asyncio.Semaphore(SIDE_BY_SIDE)
    async with session() as http, asyncio.TaskGroup() as tasks:

        async def one(scenario: Scenario) -> None:
            async with turns:
                found[scenario.id] = normalise(await play(http, url, scenario))

        for scenario in scenarios:
            tasks.create_task(one(scenario))
    return found


def rewrite(path: Path, found: dict[str, list[dict[str, Any] | None]], reference: str) -> int:
    """Write new responses into a file of recordings if any differ.

    Return the number of changed responses.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    changed = 0
    for recorded in document["scenarios"]:
        scenario = Scenario(path.stem, recorded["name"], recorded["steps"], recorded.get("differs"))
        if scenario.id not in found:
            continue
        for index in differences(scenario, found[scenario.id]):
            recorded["steps"][index]["answer"] = found[scenario.id][index]
            changed += 1
    if changed or (reference and reference != document["reference"]):
        document["reference"] = reference or document["reference"]
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return changed


def main() -> int:
    """Record the scenarios and print the changes by group; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", metavar="URL", required=True, help="a running server")
    parser.add_argument("--only", default="", metavar="TEXT", help="only scenarios whose group/name holds TEXT")
    parser.add_argument("--reference", default="", metavar="NAME", help="name and version of the recorded server")
    parser.add_argument(
        "--into", default=REFERENCE, type=Path, metavar="DIR", help="default: the recordings themselves"
    )
    asked = parser.parse_args()
    wanted = [scenario for scenario in load() if asked.only in scenario.id]
    found = asyncio.run(answers(asked.server, wanted))
    for path in sorted(asked.into.glob("*.json")):
        count = rewrite(path, found, asked.reference if any(name.startswith(f"{path.stem}/") for name in found) else "")
        if count:
            print(f"{count:4d} answers changed in {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
