"""The comparison of two source trees: its statistics, and the imports of both trees.

Both trees must import their own sources.
"""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import against
from tests.bench.against import Ratio, Tree, check_trees, checkout, lines, ratio
from tests.bench.rig import process_tree
from tests.support.processes import ROOT


def test_ratio_is_a_geometric_mean_with_log_standard_error() -> None:
    found = ratio([(1.0, 2.0), (8.0, 1.0)])
    assert found.value == pytest.approx(2.0)
    assert found.error == pytest.approx(2.0 * math.log(4.0))  # logarithms: ln 2 ± ln 4, over two pairs


def test_ratio_ignores_the_pace_of_a_round() -> None:
    found = ratio([(1.1 * pace, pace) for pace in (1.0, 2.0, 0.5, 3.0)])
    assert found.value == pytest.approx(1.1)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_swapped_trees_have_the_inverse_ratio() -> None:
    pairs = [(1.0, 2.0), (3.0, 2.5), (1.2, 1.0)]
    there, back = ratio(pairs), ratio([(b, a) for a, b in pairs])
    assert there.value * back.value == pytest.approx(1.0)
    assert there.error / there.value == pytest.approx(back.error / back.value)


@pytest.mark.parametrize("true", [1.0, 1.05, 0.9])
def test_the_error_covers_the_true_ratio_of_noisy_rounds(true: float) -> None:
    noise = random.Random(1)
    missed = 0
    for _ in range(500):
        costs = [(noise.lognormvariate(0, 0.1), noise.lognormvariate(0, 0.1)) for _ in range(30)]
        found = ratio([(true * a, b) for a, b in costs])
        missed += abs(found.value - true) > 2 * found.error
    assert 5 <= missed <= 50, "two errors leave out about one of twenty"


@pytest.mark.parametrize(
    ("value", "error", "mark"),
    [(1.05, 0.02, "dearer"), (1.05, 0.03, ""), (1.0, 0.0, ""), (0.97, 0.02, ""), (0.95, 0.02, "cheaper")],
)
def test_a_ratio_further_than_two_errors_from_one_is_marked(value: float, error: float, mark: str) -> None:
    assert Ratio(value, error).mark == mark


def test_report_has_one_row_per_request_kind() -> None:
    assert lines({"create": Ratio(1.1, 0.01), "GET": Ratio(1.0, 0.02)}) == [
        "create           1.100 ± 0.010  dearer",
        "GET              1.000 ± 0.020",
    ]


def test_every_kind_is_measured_once() -> None:
    assert len(set(against.KINDS)) == len(against.KINDS) == len(against.REQUESTS) + 3


def package(root: Path, text: str = "") -> Tree:
    """Return a source tree with an empty package."""
    (root / "apiext").mkdir(parents=True)
    (root / "apiext" / "__init__.py").write_text(text)
    return Tree(root)


def test_a_tree_runs_its_own_sources_although_another_is_installed(tmp_path: Path) -> None:
    theirs = package(tmp_path / "theirs")
    assert theirs.package == tmp_path / "theirs" / "apiext" / "__init__.py"
    assert Tree(ROOT).package == ROOT / "apiext" / "__init__.py"
    check_trees(Tree(ROOT), theirs)


def test_a_tree_is_not_compared_with_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(ROOT)
    with pytest.raises(AssertionError, match="compared with itself"):
        check_trees(Tree(ROOT), Tree(tmp_path / "link"))


def test_a_tree_that_runs_other_sources_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()  # so that Python imports the installed package
    with pytest.raises(AssertionError, match="would run"):
        check_trees(Tree(tmp_path / "empty"), Tree(ROOT))


def git(root: Path, *arguments: str) -> str:
    """Run git in a repository and return its output."""
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    run = subprocess.run(["git", *who, *arguments], cwd=root, stdout=subprocess.PIPE, check=True)
    return run.stdout.decode().strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not on this machine")
def test_a_revision_is_checked_out_and_removed_again(tmp_path: Path) -> None:
    tree = package(tmp_path / "repository", "old = True\n")
    git(tree.root, "init", "--quiet")
    git(tree.root, "add", ".")
    git(tree.root, "commit", "--quiet", "-m", "Old")
    (tree.root / "apiext" / "__init__.py").write_text("old = False\n")
    with checkout("HEAD", tree.root) as root:
        assert (root / "apiext" / "__init__.py").read_text() == "old = True\n"
        check_trees(tree, Tree(root))
    assert not root.exists()
    assert git(tree.root, "worktree", "list").count("\n") == 0


def test_process_tree_contains_grandchildren() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        found = process_tree(parent.pid)
        parent.communicate(b"\n", 10)
    assert found[0] == parent.pid
    assert len(found) == 2
