"""FieldSet is a set algebra over paths, and its encoding is reversible (SSA-002)."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.managedfields import fieldset, fieldsv1, path
from apiext.managedfields.comparison import Comparison

pytestmark = pytest.mark.rows("SSA-002")

ELEMENTS = st.sampled_from(
    [path.field("a"), path.field("b"), path.key({"name": "x", "n": 1}), path.value("v"), path.value(2), path.index(0)]
)
PATHS = st.sets(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=12)


def as_set(tree: fieldset.FieldSet, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    below = {(*prefix, element): node for element, node in tree.items() if element != path.SELF}
    members = {here for here, node in below.items() if fieldset.is_member(node)}
    return members.union(*(as_set(node, here) for here, node in below.items()))


@given(PATHS)
def test_field_set_contains_its_paths(paths: set[tuple[str, ...]]) -> None:
    tree = fieldset.of(sorted(paths))
    assert as_set(tree) == paths
    assert all(fieldset.contains(tree, one) for one in paths)


@given(PATHS, PATHS)
def test_field_set_operations_equal_set_operations(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    a, b = fieldset.of(sorted(left)), fieldset.of(sorted(right))
    assert as_set(fieldset.union(a, b)) == left | right
    assert as_set(fieldset.intersection(a, b)) == left & right
    assert as_set(fieldset.difference(a, b)) == left - right
    assert fieldset.includes(a, b) == (right <= left)
    assert fieldset.includes(a, fieldset.intersection(a, b))
    assert a == fieldset.of(sorted(left)), "operands are not changed"


@given(st.lists(PATHS, max_size=7))
def test_union_of_many_field_sets_equals_set_union(several: list[set[tuple[str, ...]]]) -> None:
    trees = [fieldset.of(sorted(paths)) for paths in several]
    assert as_set(fieldset.union_of(trees)) == set().union(*several)
    assert trees == [fieldset.of(sorted(paths)) for paths in several], "operands are not changed"
    assert [fieldset.size(tree) for tree in trees] == [len(paths) for paths in several]


@given(PATHS, PATHS)
def test_recursive_difference_removes_whole_branches(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    kept = {one for one in left if not any(one[:n] in right for n in range(1, len(one) + 1))}
    found = fieldset.recursive_difference(fieldset.of(sorted(left)), fieldset.of(sorted(right)))
    assert as_set(found) == kept


@given(PATHS, PATHS, PATHS)
def test_ignored_fields_are_removed_before_or_after_a_union(
    left: set[tuple[str, ...]], right: set[tuple[str, ...]], ignored: set[tuple[str, ...]]
) -> None:
    a, b, c = (fieldset.of(sorted(paths)) for paths in (left, right, ignored))
    before = fieldset.union(fieldset.recursive_difference(a, c), fieldset.recursive_difference(b, c))
    assert before == fieldset.recursive_difference(fieldset.union(a, b), c)
    found = Comparison(a, b, {}).without(c)
    assert found == Comparison(fieldset.recursive_difference(a, c), fieldset.recursive_difference(b, c), {})


@given(PATHS)
def test_field_set_survives_encoding_and_decoding(paths: set[tuple[str, ...]]) -> None:
    tree = fieldset.of(sorted(paths))
    wire = orjson.dumps(tree)
    assert as_set(fieldsv1.decode(orjson.loads(wire))) == paths


@pytest.mark.parametrize("bad", [[], {"x-y": {}}, {"v:{": {}}, {"k:1": {}}, {"f:a": 1}])
def test_invalid_fields_are_refused(bad: object) -> None:
    with pytest.raises(fieldsv1.FieldsError):
        fieldsv1.decode(bad)


def test_paths_are_formatted_like_upstream() -> None:
    steps = [path.field("spec"), path.field("list"), path.key({"name": "a", "port": 1}), path.value("x"), path.index(3)]
    assert path.printed(steps) == '.spec.list[name="a",port=1][="x"][3]'
    # upstream: prints an object without separators and braces
    odd = {"name": {"b": 'x"', "a": 1.5}, "port": [None, True, 1e21]}
    assert path.printed([path.key(odd)]) == r'[name=a=1.5b="x\"",port=[null,true,1e+21]]'
    large = [path.key({"a": 1000000, "b": [7, 2**63, True]}), path.value(2**53 + 1)]
    assert path.printed(large) == "[a=1000000,b=[7,9.223372036854776e+18,true]][=9007199254740993]"
    # upstream: owned values were decoded from JSON, in which all numbers are floats
    assert path.printed(large, owned=True) == "[a=1e+06,b=[7,9.223372036854776e+18,true]][=9.007199254740992e+15]"


def test_list_item_names_are_encoded_like_go_json() -> None:
    assert path.key({"b": "x<1&2", "a": 1.0}) == r'k:{"a":1,"b":"x\u003c1\u00262"}'
    assert path.value("1.5") == 'v:"1.5"'
    assert [path.value(number) for number in (1e-7, -2.5e-9, 1e-6, 1e-10, 1e21)] == [
        "v:1e-07",
        "v:-2.5e-09",
        "v:0.000001",
        "v:1e-10",
        "v:1e+21",
    ]
    assert path.check('k:{"b":1e-7,"a":"1e-7"}') == 'k:{"a":"1e-7","b":1e-07}'
    assert path.check('v:"<"') == path.value("<")
