"""Many joined conditions select the same objects as each of them in turn."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from apiext.meta.selectors import Requirement
from apiext.storage.store import Entry
from apiext.verbs import selection

KEYS = st.sampled_from("abc")
VALUES = st.sampled_from(["x", "y", "1", "2", "3", ""])
LABELS = st.dictionaries(KEYS, VALUES)
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["exists", "!"])),
    st.builds(Requirement, KEYS, st.sampled_from(["in", "notin"]), st.lists(VALUES, min_size=1).map(tuple)),
    st.builds(
        Requirement, KEYS, st.sampled_from(["gt", "lt"]), st.sampled_from(["1", "02", "+3"]).map(lambda it: (it,))
    ),
)


def entry(labels: dict[str, str]) -> Entry:
    """Return an object with ``labels``."""
    return Entry("d", "a", 1, orjson.dumps({"metadata": {"name": "a", "labels": labels}}))


@given(st.lists(REQUIREMENTS, min_size=1, max_size=4), LABELS)
def test_joined_label_conditions_equal_single_conditions(asked: list[Requirement], labels: dict[str, str]) -> None:
    each = all(one.matches(labels) for one in asked)
    many = asked * 20  # enough to be joined
    assert all(term.matches(entry(labels)) for term in selection._label_terms(many)) == each
    assert all(term.matches(entry(labels)) for term in selection._label_terms(asked)) == each


@given(st.lists(st.tuples(st.sampled_from(["=", "!="]), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=4))
def test_joined_field_conditions_equal_single_conditions(asked: list[tuple[str, str]]) -> None:
    terms = [(selection._NAME, operator, value) for operator, value in asked]
    each = all((value == "a") == (operator == "=") for operator, value in asked)
    assert all(term.matches(entry({})) for term in selection._field_terms(terms * 20)) == each
