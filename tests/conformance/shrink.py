"""Play the recordings and update ``not_yet.yaml``: remove steps that pass.

With --add, add steps that differ.

python -m tests.conformance.shrink [--server URL] [--add] [--only TEXT] [--show N]
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from apiext.conformance.replay import recorded
from apiext.conformance.replay.compare import Player
from tests.support.processes import REFERENCE_FLAGS, running_server


def main() -> int:
    """Return 0 if no step differs that is not in ``not_yet.yaml``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", metavar="URL", help="a running server; default: one started for this")
    parser.add_argument("--add", action="store_true", help="list what differs, under its row and piece")
    parser.add_argument("--only", default="", metavar="TEXT", help="only scenarios whose group/name holds TEXT")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the first N differences")
    asked = parser.parse_args()
    scenarios = [scenario for scenario in recorded.load() if asked.only in scenario.id]
    before, shown, fresh = recorded.not_yet(), 0, 0
    left_out = recorded.left_out(before)
    after = {key: entry for key, entry in before.items() if key.startswith(recorded.WITHOUT)}
    with contextlib.ExitStack() as stack:
        url = asked.server or stack.enter_context(running_server(REFERENCE_FLAGS)).url
        player = Player(url, scenarios, left_out)
        for scenario in recorded.load():
            keys = [f"{scenario.id}/{index}" for index in range(len(scenario.steps))]
            if asked.only not in scenario.id:
                after.update({key: before[key] for key in keys if key in before})
                continue
            found = player.differences(scenario)
            for index, diff in found.items():
                key = keys[index]
                if key in before:
                    after[key] = before[key]
                    continue
                fresh += 1
                if asked.add:
                    after[key] = {"row": scenario.rows_of(index)[0], "piece": scenario.piece_of(index)}
                if shown < asked.show:
                    shown += 1
                    print(f"{scenario.id}: {diff}\n")
            if found:
                print(f"{len(found):4d} of {len(scenario.steps):3d} steps differ in {scenario.id}")
    if not asked.only and not player.spared:
        after = {key: entry for key, entry in after.items() if not key.startswith(recorded.WITHOUT)}
    steps = sum(len(scenario.steps) for scenario in scenarios)
    recorded.write_not_yet(after)
    print(f"{steps} steps played; listed before {len(before)}, now {len(after)}; {fresh} differ and were not listed")
    return 0 if asked.add or not fresh else 1


if __name__ == "__main__":
    sys.exit(main())
