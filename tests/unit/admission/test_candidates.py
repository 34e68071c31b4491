"""Candidates: they contain every hook that matches a write, for every content of the cache."""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.admission import limits
from apiext.admission.attributes import Attributes
from apiext.admission.matching import Candidates, Criteria, Rule
from apiext.auth.user import User
from tests.unit.catalog import samples

ALICE = User("alice", ("devs",), "u1")
WIDGETS = samples.resource(samples.version("v1", {"type": "object"}), samples.version("v2", {"type": "object"}))
OTHERS = samples.resource(samples.version("v1", {"type": "object"}), group="other.example.com")
EQUAL = replace(WIDGETS, equivalents=(OTHERS.versions["v1"],))

NAMES = st.frozensets(st.sampled_from(["*", "x", "y"]), max_size=2)
RULES = st.builds(
    Rule,
    operations=st.frozensets(st.sampled_from(["*", "CREATE", "UPDATE", "DELETE"]), max_size=3),
    groups=st.frozensets(st.sampled_from(["*", "example.com", "other.example.com", "absent.io"]), max_size=2),
    versions=st.frozensets(st.sampled_from(["*", "v1", "v2", "v3"]), max_size=2),
    resources=st.lists(
        st.tuples(st.sampled_from(["*", "widgets", "gadgets"]), st.sampled_from(["", "*", "status"])), max_size=2
    ).map(tuple),
    scope=st.sampled_from(["*", "Namespaced", "Cluster"]),
    names=st.just(frozenset[str]()) | NAMES,
)
CRITERIA = st.builds(
    Criteria,
    rules=st.lists(RULES, max_size=2).map(tuple),
    excluded=st.lists(RULES, max_size=1).map(tuple),
    equivalent=st.booleans(),
    any_resource=st.booleans(),
)


def write(operation: str, subresource: str, *, equals: bool) -> Attributes:
    definition = EQUAL if equals else WIDGETS
    served = definition.versions["v1"]
    names = served.names
    return Attributes(
        operation, names.group_resource, "v1", names.group_kind, subresource, "n", "x", ALICE, dry_run=False,
        served=served, definition=definition,
    )  # fmt: skip


WRITES = st.builds(
    write, st.sampled_from(["CREATE", "UPDATE", "DELETE"]), st.sampled_from(["", "status"]), equals=st.booleans()
)

OTHER_GROUP = Criteria(
    (Rule(frozenset("*"), frozenset(["other.example.com"]), frozenset("*"), (("widgets", ""),)),), equivalent=True
)


@given(st.lists(st.lists(CRITERIA, max_size=4).map(tuple), min_size=1, max_size=3), st.lists(WRITES, max_size=6))
@example([(OTHER_GROUP,)], [write("CREATE", "", equals=False), write("CREATE", "", equals=True)])
async def test_no_matching_hook_is_left_out(
    configurations: list[tuple[Criteria, ...]], writes: list[Attributes]
) -> None:
    candidates = Candidates[Criteria](lambda criteria: criteria)
    for hooks in configurations:
        for attributes in writes * 2:
            found = await candidates.among(hooks, attributes)
            assert all(hooks[index] is hook for index, hook in found)
            matching = [index for index, hook in enumerate(hooks) if hook.form(attributes) is not None]
            assert set(matching) <= {index for index, _ in found}


async def test_hooks_of_another_resource_are_no_candidates() -> None:
    rule = Rule(frozenset("*"), frozenset(["example.com"]), frozenset("*"), (("gadgets", ""),))
    attributes = write("CREATE", "", equals=False)
    assert not await Candidates[Criteria](lambda it: it).among((Criteria((rule,)),), attributes)


async def test_concurrent_configurations_have_separate_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)  # an iteration of the event loop for each hook
    candidates, attributes = Candidates[Criteria](lambda it: it), write("CREATE", "", equals=False)
    old, new = ((Criteria((), any_resource=True),) * number for number in (5, 3))
    found = await asyncio.gather(candidates.among(old, attributes), candidates.among(new, attributes))
    assert [len(each) for each in found] == [5, 3]
    assert len(await candidates.among(new, attributes)) == 3


async def test_candidate_cache_size_is_limited() -> None:
    candidates, hooks = Candidates[Criteria](lambda it: it), (Criteria((), any_resource=True),)
    attributes = write("CREATE", "", equals=False)
    found = [
        await candidates.among(hooks, replace(attributes, subresource=f"s{number}"))
        for number in range(limits.WRITES_MATCHED + 10)
    ]
    assert all(each == [(0, hooks[0])] for each in found)
    assert len({id(each[0]) for each in found}) == 1, "a list of many hooks takes eight bytes a hook"
    assert len(candidates._cached) <= limits.WRITES_MATCHED
