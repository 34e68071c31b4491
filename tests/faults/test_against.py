"""The comparison of two source trees: equal trees have a ratio of 1.

A tree that does more work has a larger ratio.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.bench.against import KINDS, Ratio, Tree, compare
from tests.support.processes import ROOT

OURS = Tree(ROOT)


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Tree]:
    """A tree with a copy of the sources."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "apiext", tmp_path / "apiext", ignore=ignored)
    yield Tree(tmp_path)
    shutil.rmtree(tmp_path)


def ratios(ours: Tree, theirs: Tree, kinds: Sequence[str], rounds: int) -> dict[str, Ratio]:
    """Compare two trees; return the ratios after the last round."""
    *_, last = compare(ours, theirs, kinds, rounds, 30)
    return last


def is_one(found: Ratio, errors: float) -> bool:
    """Report whether a ratio differs from 1 by at most ``errors`` standard errors.

    The standard error must be small, too.
    """
    return abs(found.value - 1) <= errors * found.error and found.error < 0.3


@pytest.mark.long
def test_slower_tree_has_a_ratio_above_one(copy: Tree) -> None:
    package = copy.root / "apiext" / "__init__.py"
    with package.open("a") as text:
        text.write("\nsum(range(100_000_000))\n")
    found = ratios(copy, OURS, ["start"], 3)["start"]
    assert found.value > 1.5, found


@pytest.mark.long
def test_equal_trees_have_a_ratio_of_one(copy: Tree) -> None:
    found = ratios(OURS, copy, KINDS, 30)
    assert {kind: it for kind, it in found.items() if not is_one(it, 4)} == {}
