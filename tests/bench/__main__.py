"""Measure requests and compare their costs between revisions.

`scripts/bench` prints figures and goals; `--against REV` prints the ratio of their costs to another revision.
`--surface` prints how costs grow with unrelated objects and clients, and fails if a cost grows more than its row
allows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.bench import against, surface
from tests.bench.measures import MEASURES, Figure, run
from tests.bench.rig import SPIN_REFERENCE, interpreter, spin
from tests.support.shared import ROOT

PAGE = ROOT / "docs" / "lab" / "figures.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def shown(value: float) -> str:
    """Format a figure with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(figures: list[Figure]) -> list[str]:
    """Return the figures as rows of a Markdown table."""
    rows = ["| Workload | Read | Figure | Unit | Goal | |", "|---|---:|---:|---|---:|---|"]
    for it in figures:
        goal = f"{'≥' if it.more else '≤'} {shown(it.goal)}" if it.goal else ""
        read = shown(it.value) if it.there != it.value else ""
        rows.append(f"| {it.workload} | {read} | {shown(it.there)} | {it.unit} | {goal} | {it.verdict} |")
    return rows


def compare(asked: argparse.Namespace) -> None:
    """Print the cost of requests in one tree divided by their cost in another."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(against.checkout(asked.tree)) if asked.tree else ROOT
        theirs = stack.enter_context(against.checkout(asked.against))
        trees = against.Tree(ours), against.Tree(theirs, asked.python)
        print(
            f"{asked.tree or 'this checkout'} against {asked.against}: CPU and memory of the server, "
            f"{asked.rounds} rounds of {asked.requests} requests a kind; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        kinds = [kind for kind in against.KINDS if not asked.only or kind in asked.only]
        ratios: dict[str, against.Ratio] = {}
        done = 1
        try:
            for so_far in against.compare(*trees, kinds, asked.rounds, asked.requests):
                ratios, done = so_far, done + 1
        finally:  # an interrupted comparison has results, too
            print(*against.lines(ratios), f"{done} rounds; load {os.getloadavg()[0]:.1f}", sep="\n")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"{', '.join(MEASURES)}; with --against: {', '.join(against.KINDS)}",
    )
    parser.add_argument("--write", action="store_true", help="put the figures into docs/lab/figures.md")
    parser.add_argument(
        "--surface",
        nargs="*",
        metavar="NAME",
        help="print costs and exponents of dimensions of tests/bench/surface.yaml, or of all; fail beyond a row",
    )
    group = parser.add_argument_group("comparison of two revisions")
    group.add_argument("--against", metavar="REV", help="print the cost of this checkout over that of a revision")
    group.add_argument("--tree", metavar="REV", help="compare this revision instead of the checkout as it is")
    group.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="run the other revision with this interpreter, of an environment with its dependencies",
    )
    group.add_argument("--rounds", type=int, default=30, help="restarts of both servers, at least 2 (default: 30)")
    group.add_argument("--requests", type=int, default=30, help="requests of each kind in a round (default: 30)")
    asked = parser.parse_args()
    if unknown := set(asked.only) - set(against.KINDS if asked.against else MEASURES):
        parser.error(f"unknown names: {', '.join(sorted(unknown))}")
    if unknown := set(asked.surface or ()) - {one.name for one in surface.dimensions()}:
        parser.error(f"unknown dimensions: {', '.join(sorted(unknown))}")
    if asked.tree and not asked.against:
        parser.error("--tree needs --against")
    if asked.rounds < 2 or asked.requests < 1:
        parser.error("at least 2 rounds of 1 request are needed")
    return asked


def grow(names: Sequence[str]) -> int:
    """Print the growth of costs; return 1 if a dimension exceeds its exponent."""
    exceeded = 0
    for slope in surface.measure(names):
        print(slope.line, flush=True)
        exceeded |= not slope.holds
    return exceeded


def main() -> int:
    """Run the command; return its exit code. Only growth can fail, not absolute figures."""
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped and worktrees removed
    if asked.surface is not None:
        return grow(asked.surface)
    if asked.against:
        compare(asked)
        return 0
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
