"""The growth of costs with unrelated objects and clients.

No dimension exceeds the exponent of its row.
"""

from __future__ import annotations

import pytest

from tests.bench.surface import COSTS, Dimension, dimensions, measure
from tests.support.processes import etcd_binary

ROWS = dimensions()

pytestmark = pytest.mark.skipif(etcd_binary() is None, reason="no etcd")


@pytest.mark.parametrize(
    "dimension", [pytest.param(one, id=one.name, marks=() if one.quick else pytest.mark.long) for one in ROWS]
)
def test_cost_growth_stays_within_the_exponent_of_its_row(dimension: Dimension) -> None:
    (found,) = measure([dimension.name])
    print(found.line)
    assert found.holds, found.line


def test_each_dimension_has_a_row_and_three_are_quick() -> None:
    assert {one.name for one in ROWS} == set(COSTS)
    assert sum(one.quick for one in ROWS) == 3
    assert all(len(one.sizes) == 3 and list(one.sizes) == sorted(set(one.sizes)) for one in ROWS)
