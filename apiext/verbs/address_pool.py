"""Allocate service addresses of one or two families, and node ports."""

import copy
import random
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence

import orjson

from apiext.catalog.builtin.ips import address_of
from apiext.config import ServiceRanges
from apiext.documents.document import View
from apiext.meta import status
from apiext.text.quotes import go_quote
from apiext.verbs import limits

_TAKEN_ADDRESS, TAKEN_PORT = "provided IP is already allocated", "provided port is already allocated"
_OTHER_NETWORK = "the provided network does not match the current range"
_OTHER_NETWORK_PREVIEW = "the provided IP ({}) is not in the valid range. The range of valid IPs is {}"
_OTHER_PORT = "provided port is not in the valid range. The range of valid ports is {}-{}"


class Addresses:
    """The allocated addresses and node ports of services; ``clock()`` is in seconds.

    The pool chooses a recently allocated address again only if no other is free, since its service may not be stored
    yet. A client may still request such an address.
    Two servers may allocate the same address at the same time. A lock guards the pool, since threads validate writes of
    large objects.
    """

    def __init__(self, ranges: ServiceRanges | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        ranges = ranges or ServiceRanges()
        self.families = tuple(f"IPv{network.version}" for network in ranges.networks)
        """The available address families; the first is the default of services."""
        self._networks = dict(zip(self.families, ranges.networks, strict=True))
        self._ports = ranges.ports
        self._clock = clock
        self._taken: dict[str, tuple[str | int, ...]] = {}  # key of a service → its addresses and ports
        self._used: Counter[str | int] = Counter()  # address or port → number of its services
        self._recent: OrderedDict[str | int, float] = OrderedDict()  # address or port → time of its allocation
        self._lock = threading.Lock()
        self._dry_run = False

    @property
    def preview(self) -> "Addresses":
        """The same pool for a dry run.

        As in upstream, a dry run accepts ports outside the range. Addresses outside the range have another error text.
        """
        seen = copy.copy(self)  # shares the allocated addresses
        seen._dry_run = True
        return seen

    def put(self, key: str, raw: bytes) -> None:
        """Record a stored service."""
        try:
            taken = tuple(_taken(orjson.loads(raw)["spec"]))
        # Another program has stored an invalid service. Reads of the service report the error.
        except (AttributeError, KeyError, TypeError, ValueError):
            taken = ()
        self.drop(key)
        with self._lock:
            self._taken[key] = taken
            self._used.update(taken)

    def drop(self, key: str) -> None:
        """Release the addresses and ports of a service."""
        with self._lock:
            for one in self._taken.pop(key, ()):
                self._used[one] -= 1
                if self._used[one] <= 0:
                    del self._used[one]

    def address(self, family: str, name: str) -> str:
        """Return a free address for the service with a name; raise a 500 if no address is free."""
        network = self._networks[family]
        found = self._free(lambda number: str(network[number]), self._numbers(family))
        if found is None:
            raise status.internal(f"failed to allocate a serviceIP for Service {go_quote(name)}: range is full")
        return str(found)

    def first(self, name: str) -> str:
        """Return the first address of the default family, or another one if a service has it.

        Raise a 500 if no address is free.
        """
        family = self.families[0]
        found = str(self._networks[family][1])
        return self.address(family, name) if self._taken_error(found, _TAKEN_ADDRESS) else found

    def port(self, but: Collection[int] = ()) -> int:
        """Return a free node port that is not in ``but``; raise a 500 if no port is free."""
        found = self._free(lambda number: number, self._ports, but)
        if found is None:
            raise status.internal("failed to allocate a nodePort: range is full")
        return int(found)

    def address_error(self, family: str, text: str) -> str:
        """Return the reason why a service cannot have its requested address, or an empty string."""
        network, address = self._networks[family], address_of(text)
        ends = (network.network_address, *((network.broadcast_address,) if network.version == 4 else ()))
        if address is None or address not in network or address in ends:
            return _OTHER_NETWORK_PREVIEW.format(text, network) if self._dry_run else _OTHER_NETWORK
        return self._taken_error(str(address), _TAKEN_ADDRESS)

    def port_error(self, number: int) -> str:
        """Return the reason why a service cannot have its requested node port, or an empty string."""
        if number not in self._ports:
            return "" if self._dry_run else _OTHER_PORT.format(self._ports.start, self._ports.stop - 1)
        return self._taken_error(number, TAKEN_PORT)

    def _taken_error(self, wanted: str | int, text: str) -> str:
        """Return ``text`` if a stored service has the address or port, else "".

        In the second case, the address or port counts as recently allocated.
        """
        with self._lock:
            if wanted in self._used:
                return text
            self._note(wanted)
            return ""

    def _note(self, given: str | int) -> None:
        self._recent[given] = self._clock()
        self._recent.move_to_end(given)
        if len(self._recent) > limits.ADDRESSES_GIVEN:
            self._recent.popitem(last=False)

    def _numbers(self, family: str) -> range:
        """Return the indices of assignable addresses, at most limits.ADDRESSES_OF_A_FAMILY.

        The network address is not assignable, and in IPv4 neither is the broadcast address.
        """
        size = self._networks[family].num_addresses
        return range(1, min(size - (family == "IPv4"), limits.ADDRESSES_OF_A_FAMILY))

    def _free(self, made: Callable[[int], str | int], numbers: range, but: Collection[int] = ()) -> str | int | None:
        now = self._clock()
        with self._lock:
            while self._recent and next(iter(self._recent.values())) < now - limits.ADDRESS_GIVEN:
                self._recent.popitem(last=False)
            found = next(self._candidates(made, numbers, but), None)
            if found is not None:
                self._note(found)
        return found

    def _candidates(
        self, made: Callable[[int], str | int], numbers: range, but: Collection[int]
    ) -> Iterator[str | int]:
        """Yield free addresses or ports in the order in which they are tried.

        The order: random ones, the rest in order, then recently allocated ones.
        """
        for _ in range(limits.ADDRESS_TRIES if numbers else 0):
            found = made(random.choice(numbers))
            if found not in self._used and found not in but and found not in self._recent:
                yield found
        unused = [found for found in map(made, numbers) if found not in self._used and found not in but]
        yield from (found for found in unused if found not in self._recent)
        yield from unused


def _taken(spec: View) -> Iterator[str | int]:
    named: Sequence[str] = spec.get("clusterIPs") or (spec.get("clusterIP") or "None",)
    yield from (str(address_of(text) or text) for text in named if text != "None")
    for number in (*(port.get("nodePort") for port in spec.get("ports") or ()), spec.get("healthCheckNodePort")):
        if number:
            yield int(number)
