"""Which round of mutating plug-ins a write is in, and what is called again."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.admission.rounds import Rounds
from apiext.auth.user import User
from apiext.documents.document import Document
from apiext.meta.names import GroupKind, GroupResource

pytestmark = pytest.mark.rows("ADM-015")


def attributes() -> Attributes:
    resource, kind = GroupResource("example.com", "widgets"), GroupKind("example.com", "Widget")
    return Attributes("CREATE", resource, "v1", kind, "", "n", "x", User("alice"), dry_run=False)


class Writes:
    """A mutating plug-in that notes its rounds, asks for a second one, and calls again what it called."""

    idle = False

    def __init__(self, name: str, seen: list[tuple[str, bool, bool]], member: str = "") -> None:
        self.name = name
        self._seen = seen
        self._member = member

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        rounds, again = attributes.enter(self.name, new)
        self._seen.append((self.name, rounds.second, self.name in again.wanted))
        again.called(self.name)
        if self._member and self._member not in (new or {}):
            new = {**(new or {}), self._member: 1}
            rounds.asked = True
        again.leave(new)
        return new


class Reads:
    """A plug-in that only judges."""

    name = "reads"
    idle = False

    async def review(self, attributes: Attributes) -> None:
        return


@pytest.mark.parametrize(
    ("members", "seen"),
    [
        (("", ""), [("a", False, False), ("b", False, False)]),
        (("x", ""), [("a", False, False), ("b", False, False), ("a", True, False), ("b", True, False)]),
        (("", "y"), [("a", False, False), ("b", False, False), ("a", True, True), ("b", True, False)]),
    ],
    ids=["nobody changes it", "the first changes it", "the last changes it"],
)
async def test_a_second_round(members: tuple[str, str], seen: list[tuple[str, bool, bool]]) -> None:
    """Only who left another object than comes is to call again."""
    found: list[tuple[str, bool, bool]] = []
    first, last = (Writes(name, found, member) for name, member in zip("ab", members, strict=True))
    made = await Chain([first, Reads(), last]).mutate(attributes(), {})
    assert found == seen
    assert made == {member: 1 for member in members if member}


def test_what_changes_later_is_for_those_called_before() -> None:
    rounds = Rounds()
    again = rounds.enter("p", {})
    again.called("early")
    again.changed()
    again.called("late")
    assert again.wanted == {"early"}
    assert (rounds.next(), rounds.second) == (False, False)
    rounds.asked = True
    again.leave({"a": 1})
    assert (rounds.next(), rounds.next(), rounds.second) == (True, False, True)
    assert rounds.enter("p", {"a": 1}).wanted == {"early"}
    assert rounds.enter("p", {"a": True}).wanted == {"early", "late"}  # 1 is not true


async def test_a_plug_in_is_asked_only_for_what_it_does() -> None:
    """What judges costs the mutating moment nothing, and the other way round."""

    class Mutates(Writes):
        @property
        def idle(self) -> bool:  # type: ignore[override]
            asked.append("mutates")
            return True

    class Judges(Reads):
        @property
        def idle(self) -> bool:  # type: ignore[override]
            asked.append("judges")
            return True

    asked: list[str] = []
    chain = Chain([Mutates("m", []), Judges()])
    known: Any = attributes()
    asked.clear()  # a protocol is looked for once, as the chain is made
    await chain.mutate(known, {})
    assert asked == ["mutates"]
    await chain.review(known)
    assert asked == ["mutates", "judges"]
    assert known.rounds is None
