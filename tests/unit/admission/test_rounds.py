"""Rounds of mutating plug-ins, and reinvocation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.admission.metrics import Metrics
from apiext.admission.rounds import Rounds
from apiext.auth.user import User
from apiext.documents.document import Document
from apiext.meta.names import GroupKind, GroupResource

pytestmark = pytest.mark.rows("ADM-015")


def attributes() -> Attributes:
    resource, kind = GroupResource("example.com", "widgets"), GroupKind("example.com", "Widget")
    return Attributes("CREATE", resource, "v1", kind, "", "n", "x", User("alice"), dry_run=False)


class Writes:
    """A mutating plug-in that records its rounds.

    It requests a second round if it adds its member to the object.
    """

    def __init__(self, name: str, seen: list[tuple[str, bool, bool]], member: str = "") -> None:
        self.name = name
        self._seen = seen
        self._member = member

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        rounds, reinvocation = attributes.enter(self.name, new)
        self._seen.append((self.name, rounds.second, self.name in reinvocation.hooks_to_call))
        reinvocation.note_call(self.name)
        if self._member and self._member not in (new or {}):
            new = {**(new or {}), self._member: 1}
            rounds.second_needed = True
        reinvocation.leave(new)
        return new


class Reads:
    """A plug-in that only validates."""

    name = "reads"

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def review(self, attributes: Attributes) -> None:
        return


@pytest.mark.parametrize(
    ("members", "seen"),
    [
        (("", ""), [("a", False, False), ("b", False, False)]),
        (("x", ""), [("a", False, False), ("b", False, False), ("a", True, False), ("b", True, False)]),
        (("", "y"), [("a", False, False), ("b", False, False), ("a", True, True), ("b", True, False)]),
    ],
    ids=["no change", "first plug-in changes object", "last plug-in changes object"],
)
async def test_plugin_change_causes_a_second_round(
    members: tuple[str, str], seen: list[tuple[str, bool, bool]]
) -> None:
    """The chain calls a plug-in again only if later plug-ins have changed its result."""
    found: list[tuple[str, bool, bool]] = []
    first, last = (Writes(name, found, member) for name, member in zip("ab", members, strict=True))
    made = await Chain([first, Reads(), last]).mutate(attributes(), {})
    assert found == seen
    assert made == {member: 1 for member in members if member}


def test_later_change_reinvokes_earlier_hooks() -> None:
    rounds = Rounds()
    reinvocation = rounds.enter("p", {})
    reinvocation.note_call("early")
    reinvocation.note_change()
    reinvocation.note_call("late")
    assert reinvocation.hooks_to_call == {"early"}
    assert (rounds.next(), rounds.second) == (False, False)
    rounds.second_needed = True
    reinvocation.leave({"a": 1})
    assert (rounds.next(), rounds.next(), rounds.second) == (True, False, True)
    assert rounds.enter("p", {"a": 1}).hooks_to_call == {"early"}
    assert rounds.enter("p", {"a": True}).hooks_to_call == {"early", "late"}  # in Python 1 == True


class Sometimes(Writes):
    """A plug-in that applies to creates of widgets while it has a configuration."""

    def __init__(self, name: str, seen: list[tuple[str, bool, bool]]) -> None:
        super().__init__(name, seen)
        self.configured = False
        self.compiled = 0
        self.changed: Callable[[], None] = lambda: None

    def applies(self, operation: str, resource: GroupResource) -> bool:
        self.compiled += 1
        return self.configured and (operation, resource.resource) == ("CREATE", "widgets")

    def follow(self, changed: Callable[[], None]) -> None:
        self.changed = changed


async def test_plugins_of_a_write_are_cached_until_a_change() -> None:
    seen: list[tuple[str, bool, bool]] = []
    plugin = Sometimes("s", seen)
    chain = Chain([plugin, Reads()])
    for configured, calls in ((False, 0), (True, 1), (False, 1)):
        plugin.configured = configured
        plugin.changed()
        for _ in range(3):
            assert chain.applies("CREATE", GroupResource("example.com", "widgets"))
        await chain.mutate(attributes(), {})
        assert len(seen) == calls
        assert plugin.compiled == 1, "the moments of a kind of write are kept"
        plugin.compiled = 0
    plugin.configured = True
    plugin.changed()
    await chain.mutate(replace(attributes(), operation="UPDATE"), {})
    assert len(seen) == 1


class Elsewhere:
    """A plug-in that needs no configuration, and applies to other resources."""

    name = "Elsewhere"

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return False

    async def review(self, attributes: Attributes) -> None:
        raise AssertionError("it does not apply")


async def test_metrics_observe_steps_but_not_unconfigured_plugins() -> None:
    def counts() -> dict[tuple[str, ...], int]:
        return {
            labels: sum(slot.buckets)
            for family in (metrics._steps, metrics._plugins)
            for labels, slot in family._slots.items()
        }

    metrics = Metrics()
    chain = Chain([Elsewhere(), Sometimes("s", [])], metrics)
    await chain.mutate(attributes(), {})
    await chain.review(attributes())
    assert counts() == {
        ("admit", "CREATE", "false"): 1,
        ("validate", "CREATE", "false"): 1,
        ("Elsewhere", "validate", "CREATE", "false"): 1,
    }
