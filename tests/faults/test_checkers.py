"""The checkers find each kind of damage in a small artificial history.

They find no violation in a correct history.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.checkers import violations
from tests.faults.history import Delivered, History, Read, Watched, Write
from tests.support.etcd_reader import Event


def counter(revision: int, count: int, previous: int, created: bool = False) -> Event:
    spec = {"count": count, "previous": str(previous), "token": f"t{revision}"}
    return Event("/p/g/widgets/default/counter-0", revision, {"spec": spec}, created)


def correct_history() -> tuple[History, list[Event]]:
    """Return a history without violations."""
    kept = [
        counter(10, 0, 0, created=True),
        counter(11, 1, 10),
        Event("/p/g/widgets/default/w0-0", 12, {"spec": {"token": "t12"}}, True),
        counter(13, 2, 11),
        Event("/p/g/widgets/default/w0-0", 14, None, False),
    ]
    history = History()
    for event in kept[:4]:
        history.acknowledge(Write(event.name, event.revision, f"t{event.revision}"))
    history.deleted.append("w0-0")
    history.reads.append(Read("counter-0", 11, 13))
    history.watched.append(Watched(10, [Delivered(event.kind, event.name, event.revision) for event in kept[1:]], 1))
    return history, kept


def test_correct_history_has_no_violations() -> None:
    assert violations(*correct_history()) == []


def lose_a_write(history: History, kept: list[Event]) -> None:
    del kept[2]


def renumber_a_write(history: History, kept: list[Event]) -> None:
    history.writes[1] = Write("counter-0", 12, "t11")


def overwrite_unseen(history: History, kept: list[Event]) -> None:
    kept[3] = counter(13, 1, 10)


def count_twice(history: History, kept: list[Event]) -> None:
    kept[3] = counter(13, 5, 11)


def read_stale_state(history: History, kept: list[Event]) -> None:
    history.reads.append(Read("counter-0", 13, 11))


def drop_an_event(history: History, kept: list[Event]) -> None:
    del history.watched[0].events[1]


def repeat_an_event(history: History, kept: list[Event]) -> None:
    history.watched[0].events.insert(1, history.watched[0].events[0])


def swap_events(history: History, kept: list[Event]) -> None:
    events = history.watched[0].events
    events[0], events[1] = events[1], events[0]


def rename_an_object(history: History, kept: list[Event]) -> None:
    history.watched[0].events[0] = Delivered("ADDED", "counter-0", 11)


def restore_a_deleted_object(history: History, kept: list[Event]) -> None:
    del kept[4]
    del history.watched[0].events[3]


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_write, renumber_a_write, overwrite_unseen, count_twice, read_stale_state, drop_an_event, repeat_an_event,
        swap_events, rename_an_object, restore_a_deleted_object,
    ],
)  # fmt: skip
def test_damaged_history_has_violations(damage: Callable[[History, list[Event]], None]) -> None:
    history, kept = correct_history()
    damage(history, kept)
    assert violations(history, kept)
