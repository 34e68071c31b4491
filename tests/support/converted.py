"""A slow conversion webhook for watches.

It adds a label, which is not stored, with the number of the object.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import orjson
from msgspec.structs import replace

from apiext.storage.converted_routes import ConvertedRoute
from apiext.storage.indexes import Dimension, Term
from apiext.storage.store import EncodedView, Entry, ViewedEntry
from apiext.storage.watching import WatchGroup
from tests.support.sinks import watch_group

OWN = Dimension(("label", "own"), lambda entry: entry.labels.get("own"), "own")


def view(raw: bytes, revision: int) -> bytes:
    """Return the converted object: ``{"n": 1}`` gets the label ``own: v1``."""
    number = orjson.loads(raw).get("n")
    return orjson.dumps({"metadata": {"labels": {"own": f"v{number}"}}})


def shown(entry: Entry) -> ViewedEntry:
    """Return the converted entry of a stored entry."""
    return ViewedEntry.of(entry, view, EncodedView(view(entry.raw, entry.revision), entry.revision))


class SlowWebhook:
    """A Stage that converts entries after a random number of loop iterations.

    It randomly loses cached results. ``calls`` counts its calls, ``objects`` the objects in them. If ``fails`` is true
    for an entry, its conversion fails.
    """

    def __init__(self, random: Random, turns: int = 5, forgets: float = 0.1) -> None:
        self.calls = self.objects = self.asked = 0
        self.fails: Callable[[Entry], bool] = lambda entry: False
        self._random = random
        self._turns = turns
        self._forgets = forgets
        self._known: set[Entry] = set()

    def may_select(self, entry: Entry) -> bool:
        return True

    def now(self, entry: Entry) -> Entry | None:
        self.asked += 1
        if self._random.random() < self._forgets:
            self._known.clear()
        return shown(entry) if entry in self._known else None

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        self.calls += 1
        self.objects += len(entries)
        self._answer(list(entries), then, self._random.randrange(self._turns))

    def _answer(self, entries: list[Entry], then: Callable[[Sequence[Entry] | bytes], None], turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._answer, entries, then, turns - 1)
        elif any(map(self.fails, entries)):
            then(b'["ERROR","500",0]\n')
        else:
            self._known.update(entries)
            then([shown(entry) for entry in entries])

    def on_idle(self) -> None:
        pass

    def group(self, value: str, namespace: str | None = None, key: str = "") -> WatchGroup:
        """Return a group that selects objects with this value of the label ``own``."""
        term = Term(OWN, lambda found: found == value, frozenset((value,)))
        return replace(
            watch_group(namespace, term.matches, key=key), stage=self, converted=ConvertedRoute("v2", self, term)
        )
