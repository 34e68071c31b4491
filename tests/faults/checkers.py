"""Check a run: compare the recorded history with the changes in the store.

The checkers are pure functions that yield violations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.history import Delivered, History, Watched
from tests.support.etcd_reader import Event


def acknowledged_is_stored(history: History, kept: Sequence[Event]) -> Iterator[str]:
    """Yield acknowledged writes that etcd does not have with this revision and value."""
    by_revision = {event.revision: event for event in kept}
    for write in history.writes:
        event = by_revision.get(write.revision)
        if event is None or event.name != write.name:
            yield f"acknowledged {write} is not in etcd (there: {event})"
            continue
        token = event.value["spec"]["token"] if event.value else None
        if token != write.token:
            yield f"acknowledged {write} is in etcd as {token}"


def acknowledged_deletions_hold(history: History, kept: Sequence[Event]) -> Iterator[str]:
    """Yield acknowledged deletions of objects that exist in etcd at the end.

    Each name is used only once.
    """
    last = {event.name: event for event in kept}
    for name in history.deleted:
        if name not in last or last[name].value is not None:
            yield f"the deletion of {name} was acknowledged, but etcd has {last.get(name)}"


def no_update_is_lost(kept: Sequence[Event]) -> Iterator[str]:
    """Yield updates of a counter that do not add 1 to the state that the writer had read."""
    last: dict[str, tuple[int, int]] = {}
    for event in kept:
        if not event.name.startswith("counter-") or event.value is None:
            continue
        spec = event.value["spec"]
        if event.name in last:
            revision, count = last[event.name]
            if int(spec["previous"]) != revision:
                yield f"{event.name}@{event.revision} was made from {spec['previous']}, but {revision} came between"
            if spec["count"] != count + 1:
                yield f"{event.name}@{event.revision} counts {spec['count']} after {count}"
        last[event.name] = (event.revision, spec["count"])


def nothing_counts_twice(history: History, kept: Sequence[Event]) -> Iterator[str]:
    """Yield a violation if increments of counters were lost or counted twice.

    The sum of the counters is at least the acknowledged increments, and at most all possible ones.
    """
    final = {e.name: e.value["spec"]["count"] for e in kept if e.name.startswith("counter-") and e.value is not None}
    acknowledged = Counter(write.name for write in history.writes if write.name.startswith("counter-"))
    total, told = sum(final.values()), sum(acknowledged.values()) - len(final)  # minus the creation of each counter
    if not told <= total <= told + history.unknown:
        yield f"counters stand at {total} after {told} acknowledged increments and {history.unknown} unknown ones"


def reads_are_fresh(history: History) -> Iterator[str]:
    """Yield consistent reads that lack a write acknowledged before they were sent."""
    for read in history.reads:
        if read.shown < read.floor:
            yield f"{read.what} showed revision {read.shown}, but {read.floor} was acknowledged before"


def watchers_see_all_once(history: History, kept: Sequence[Event]) -> Iterator[str]:
    """Yield watchers that did not receive exactly etcd's changes, in order, each once."""
    for number, watched in enumerate(history.watched):
        yield from (f"watcher {number} {problem}" for problem in _one_watcher(watched, kept))


def _one_watcher(watched: Watched, kept: Sequence[Event]) -> Iterator[str]:
    last = watched.events[-1].revision if watched.events else watched.since
    wanted = [
        Delivered(event.kind, event.name, event.revision) for event in kept if watched.since < event.revision <= last
    ]
    if watched.events == wanted:
        return
    got = Counter(event.revision for event in watched.events)
    yield from (f"got revision {revision} {times} times" for revision, times in got.items() if times > 1)
    yield from (f"was never sent {event}" for event in wanted if event.revision not in got)
    revisions = [event.revision for event in watched.events]
    if revisions != sorted(revisions):
        yield "got events out of order"
    yield from (f"got {event}, which etcd does not have" for event in set(watched.events) - set(wanted))


def violations(history: History, kept: Sequence[Event]) -> list[str]:
    """Return all violations of a run."""
    return [
        *history.wrong,
        *acknowledged_is_stored(history, kept),
        *acknowledged_deletions_hold(history, kept),
        *no_update_is_lost(kept),
        *nothing_counts_twice(history, kept),
        *reads_are_fresh(history),
        *watchers_see_all_once(history, kept),
    ]
