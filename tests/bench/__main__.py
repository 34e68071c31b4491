"""`scripts/bench [--only NAME …] [--write]`: prints each figure beside its goal; --write keeps them in docs."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime

from tests.bench.measures import MEASURES, Figure, run
from tests.bench.rig import SPIN_REFERENCE, interpreter, spin
from tests.support.shared import ROOT

PAGE = ROOT / "docs" / "PERFORMANCE.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def shown(value: float) -> str:
    """Return a figure with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(figures: list[Figure]) -> list[str]:
    """Return Markdown rows."""
    rows = ["| Workload | Read | Figure | Unit | Goal | |", "|---|---:|---:|---|---:|---|"]
    for it in figures:
        goal = f"{'≥' if it.more else '≤'} {shown(it.goal)}" if it.goal else ""
        read = shown(it.value) if it.there != it.value else ""
        rows.append(f"| {it.workload} | {read} | {shown(it.there)} | {it.unit} | {goal} | {it.verdict} |")
    return rows


def main() -> int:
    """Run and print; the exit code does not judge figures."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--write", action="store_true", help="put the figures into docs/PERFORMANCE.md")
    asked = parser.parse_args()
    spun = spin()
    about = [
        f"{datetime.now(UTC):%Y-%m-%d}, {interpreter()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores; spin loop {spun:.3f} s ({spun / SPIN_REFERENCE:.2f} × the reference). "
        "CPU is user plus system time of the server process alone, as read and at the reference's pace.",
        "",
    ]
    print("\n".join(about))
    figures: list[Figure] = []
    for name, figure in run(asked.only or list(MEASURES)):
        figures.append(figure)
        goal = f"goal {'≥' if figure.more else '≤'} {shown(figure.goal)}  {figure.verdict}" if figure.goal else ""
        read = f"{shown(figure.value)} at {figure.pace:.2f}" if figure.there != figure.value else ""
        print(f"{name:9} {figure.workload:55} {read:>18} {shown(figure.there):>10} {figure.unit:22} {goal}", flush=True)
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        tail = rest.split(END)[1]
        PAGE.write_text("\n".join([head + BEGIN, *about, *table(figures), END + tail]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
