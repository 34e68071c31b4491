"""The exponent of growth of a cost: the slope of the measured points.

It is independent of the machine.
"""

from __future__ import annotations

import pytest

from tests.bench.surface import Dimension, Slope

SIZES = (10, 100, 1000)


def slope(exponent: float, *costs: float, memory: bool = False) -> Slope:
    return Slope(Dimension("d", "a write", SIZES, exponent, memory=memory), costs)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 50.0])
@pytest.mark.parametrize("exponent", [-0.5, 0.0, 0.2, 1.0, 2.0])
def test_exponent_of_a_power_law_is_measured(exponent: float, factor: float) -> None:
    found = slope(1.0, *(factor * size**exponent for size in SIZES))
    assert found.exponent == pytest.approx(exponent)
    assert found.holds is (exponent <= 1.0)


def test_cost_over_its_limit_is_marked_as_exceeded() -> None:
    assert slope(0.2, 1e-3, 2e-3, 9e-3).line.endswith("EXCEEDED")
    assert "EXCEEDED" not in slope(0.2, 1e-3, 1e-3, 1.1e-3).line
    assert "1,000 µs" in slope(0.2, 1e-3, 1e-3, 1e-3).line
    assert "90 MiB" in slope(0.2, 80.0, 85.0, 90.0, memory=True).line
