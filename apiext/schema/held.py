"""Whether an object keeps all its rules: asked first, for most objects do. What is wrong is said by rules.py."""

from collections.abc import Iterable
from time import perf_counter
from typing import Any

from apiext.cel.effort import Cancelled
from apiext.cel.environment import UNDECIDED
from apiext.cel.runtime import Reached
from apiext.schema.patience import ASKING, VISITING, Patience, current
from apiext.schema.rules import Scope
from apiext.schema.timing import evaluations

_NOT = -1


def keeps(scope: Scope, value: Any, *, anew: bool) -> bool:
    """Tell whether all rules at and below a place are kept; False also where that takes more than a brief look.

    ``anew``: there is no old value, so that transition rules do not count (CEL-008); where there is one, a place that
    has any is left to the closer look, and so is what no code was made for yet. What was spent of this thread's
    patience stays spent.
    """
    patience = current()
    if not patience.brief:  # somebody may stop it, or wants to know how long it takes
        return False
    limit = patience.limit
    limit.most = patience.left
    limit.begin()  # once: all rules together may touch what a single one might
    began = perf_counter()
    try:
        places = _kept(scope, value, patience, anew)
    except (Cancelled, Reached):
        patience.left = -1
        return False
    except UNDECIDED:
        return False
    if places > 0:
        each = (perf_counter() - began) / places
        for _ in range(places):
            evaluations.observe(each)
    return places >= 0


def _kept(scope: Scope, value: Any, patience: Patience, anew: bool) -> int:
    """Return at how many places rules were kept, less than 0 when some were not."""
    left, places = patience.left - VISITING, 0
    if scope.node.rules:
        codes = (scope.codes or scope.ready())[anew]
        if codes is None:
            return _NOT
        limit, given = patience.limit, {"self": value}
        for code in codes:
            limit.most = left = left - ASKING
            kept, cost = code(given, limit)
            left -= cost
            if kept is not True:
                patience.left = left
                return _NOT
        places = 1
    patience.left = left
    if left < 0:
        return _NOT
    if value.__class__ is dict:
        if scope.values is not None:
            places = _kept_by_all(scope.values, value.values(), patience, anew, places)
        for name, inner in scope.judged.items():
            below = value.get(name)
            if below is not None and places >= 0:
                found = _kept(inner, below, patience, anew)
                places = places + found if found >= 0 else _NOT
    elif value.__class__ is list and scope.items is not None:
        places = _kept_by_all(scope.items, value, patience, anew, places)
    return places


def _kept_by_all(scope: Scope, values: Iterable[Any], patience: Patience, anew: bool, places: int) -> int:
    for value in values:
        if value is not None:
            found = _kept(scope, value, patience, anew)
            if found < 0:
                return _NOT
            places += found
    return places
