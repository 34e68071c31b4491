"""Move packets between network namespaces, with delay, loss and limited rate.

These are set for each direction. It runs as a process: `python -m tests.faults.wire SEED FD…` reads packets from the
TUN device of each namespace and writes them to the device of their destination. It does not need netem, which not every
kernel has. Its stdin accepts lines of JSON, `[from, to, {"delay": …}]`; it answers each with a line.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import select
import sys
import time
from dataclasses import dataclass, field

PACKET = 65_536  # bytes
QUEUED = 200  # maximum number of waiting packets of a slow link; further packets are lost, as in a router


@dataclass
class Link:
    """One direction of a link: its delay, jitter, loss and rate.

    ``delay`` and ``jitter`` are in seconds, ``loss`` is a share, ``rate`` is in bytes per second.
    """

    delay: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    rate: float = 0.0
    up: bool = True
    ends: list[float] = field(default_factory=list)  # times at which the waiting packets will have been sent

    def passes(self, size: int, now: float, chance: random.Random) -> float | None:
        """Return the time of a packet's arrival; None if it is lost."""
        if not self.up or (self.loss and chance.random() < self.loss):
            return None
        leaves = now
        if self.rate:
            self.ends = [end for end in self.ends if end > now]
            if len(self.ends) >= QUEUED:
                return None
            leaves = (self.ends[-1] if self.ends else now) + size / self.rate
            self.ends.append(leaves)
        return leaves + max(0.0, self.delay + self.jitter * chance.uniform(-1, 1))


class Wire:
    """All links between the namespaces; the address of device n ends in n + 1."""

    def __init__(self, devices: list[int], seed: int) -> None:
        self._devices = devices
        self._links = {pair: Link() for pair in itertools.permutations(range(len(devices)), 2)}
        self._chance = random.Random(seed)
        self._late: list[tuple[float, int, int, bytes]] = []
        self._count = itertools.count()

    def change(self, source: int | None, target: int | None, what: dict[str, float | bool]) -> None:
        """Replace the settings of the links from ``source`` to ``target``; None means all."""
        for pair in self._links:
            if source in (None, pair[0]) and target in (None, pair[1]):
                self._links[pair] = Link(**what)  # type: ignore[arg-type]

    def run(self) -> None:
        """Move packets until stdin is closed."""
        poll = select.poll()
        for descriptor in (0, *self._devices):
            poll.register(descriptor, select.POLLIN)
        where = {descriptor: at for at, descriptor in enumerate(self._devices)}
        while True:
            wait = (self._late[0][0] - time.monotonic()) * 1000 if self._late else None
            for descriptor, _ in poll.poll(None if wait is None else max(0.0, wait)):
                if descriptor != 0:
                    self._take(where[descriptor])
                elif not self._obey():
                    return
            now = time.monotonic()
            while self._late and self._late[0][0] <= now:
                _, _, target, packet = heapq.heappop(self._late)
                self._give(target, packet)

    def _obey(self) -> bool:
        # commands are short lines, and come one at a time
        line = os.read(0, PACKET)
        if line:
            self.change(*json.loads(line))
            os.write(1, b"\n")
        return bool(line)

    def _take(self, source: int) -> None:
        for _ in range(64):
            try:
                packet = os.read(self._devices[source], PACKET)
            except BlockingIOError:
                return
            target = packet[19] - 1
            link = self._links.get((source, target)) if packet[0] >> 4 == 4 else None
            if link is None:
                continue  # not an IPv4 packet to a known machine
            now = time.monotonic()
            at = link.passes(len(packet), now, self._chance)
            if at is not None:
                if at <= now:
                    self._give(target, packet)
                else:
                    heapq.heappush(self._late, (at, next(self._count), target, packet))

    def _give(self, target: int, packet: bytes) -> None:
        try:
            os.write(self._devices[target], packet)
        except OSError:
            pass  # the queue of the device is full: the packet is lost


if __name__ == "__main__":
    Wire([int(word) for word in sys.argv[2:]], int(sys.argv[1])).run()
