"""What services may be given: addresses of two families, and ports of the nodes."""

import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping

import orjson

from apiext import limits
from apiext.documents.document import View
from apiext.documents.quotes import go_quote
from apiext.meta import status

_NUMBERS = range(1, 0xFFFF)  # of addresses: neither that of the network nor that of all
_FAMILIES: Mapping[str, Callable[[int], str]] = {
    "IPv4": lambda number: f"10.96.{number >> 8}.{number & 0xFF}",
    "IPv6": lambda number: f"fd00:10:96::{number:x}",
}
_PORTS = range(30_000, 32_768)
_TRIES = 64


class Addresses:
    """What stored services have, by their keys, and what is free. ``clock()`` are seconds.

    What was given out a moment ago is not given again, since its service may not be stored yet. Two servers that give
    at one moment may give the same. Writes of large objects are judged in threads, so all of it goes under a lock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken: dict[str, tuple[str | int, ...]] = {}
        self._used: Counter[str | int] = Counter()
        self._recent: OrderedDict[str | int, float] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: str, raw: bytes) -> None:
        """Take note of a service as it is stored."""
        try:
            taken = tuple(_taken(orjson.loads(raw)["spec"]))
        except (AttributeError, KeyError, TypeError, ValueError):  # others have stored it: who reads it is told
            taken = ()
        self.drop(key)
        with self._lock:
            self._taken[key] = taken
            self._used.update(taken)

    def drop(self, key: str) -> None:
        """Take note that a service is gone."""
        with self._lock:
            for one in self._taken.pop(key, ()):
                self._used[one] -= 1
                if self._used[one] <= 0:
                    del self._used[one]

    def address(self, family: str, name: str) -> str:
        """Return a free address for the service of a name; 500 when there is none."""
        found = self._free(_FAMILIES[family], _NUMBERS)
        if found is None:
            raise status.internal(f"failed to allocate a serviceIP for Service {go_quote(name)}: range is full")
        return str(found)

    def port(self) -> int:
        """Return a free port of the nodes; 500 when there is none."""
        found = self._free(lambda number: number, _PORTS)
        if found is None:
            raise status.internal("failed to allocate a nodePort: range is full")
        return int(found)

    def _free(self, made: Callable[[int], str | int], numbers: range) -> str | int | None:
        now = self._clock()
        with self._lock:
            while self._recent and next(iter(self._recent.values())) < now - limits.ADDRESS_GIVEN:
                self._recent.popitem(last=False)
            found = next(self._candidates(made, numbers), None)
            if found is not None:
                self._recent[found] = now
                self._recent.move_to_end(found)
            if len(self._recent) > limits.ADDRESSES_GIVEN:
                self._recent.popitem(last=False)
        return found

    def _candidates(self, made: Callable[[int], str | int], numbers: range) -> Iterator[str | int]:
        """Yield what is free: at random, else by number, and at last what was given out a moment ago."""
        for _ in range(_TRIES):
            found = made(random.choice(numbers))
            if found not in self._used and found not in self._recent:
                yield found
        unused = [found for found in map(made, numbers) if found not in self._used]
        yield from (found for found in unused if found not in self._recent)
        yield from unused


def _taken(spec: View) -> Iterator[str | int]:
    for address in spec.get("clusterIPs") or (spec.get("clusterIP") or "None",):
        if address != "None":
            yield str(address)
    for number in (*(port.get("nodePort") for port in spec.get("ports") or ()), spec.get("healthCheckNodePort")):
        if number:
            yield int(number)
