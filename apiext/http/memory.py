"""The memory gate: what requests may take together, weighed before a body is decoded (reliability F-25).

A body becomes a document, a normalised one, sets of fields and an answer, which take up to a hundred times its bytes.
Some hundred requests may run at a time, so that allowed bodies together exceed any memory, and the kernel kills a
process that takes more than there is. So a request first estimates its need (``weight`` of its body and of the stored
object that it changes), and has it promised by ``Memory.hold``: 429 while other requests hold the memory, 413 if it
will never be there. No user is promised more than a share, so that one of them cannot keep the others out.

``http.resources`` asks for bodies and stored objects, ``http.connection`` for answers, which a slow client leaves in
memory. The promise is released in one place, ``http.connection.ApiHandler.answer``, once the answer is out. Requests
that need less than ``limits.UNWEIGHED`` are not weighed: the limits on their number bound them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from apiext import limits
from apiext.auth.user import User
from apiext.http.messages import short_messages
from apiext.http.negotiation import JSON, PROTOBUF, YAML
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.storage.room import Room
from apiext.turn import Turn

APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
_BUSY = "the server has too little memory left for this request; try again"
_NEVER = "the request needs about %d MiB of memory, and the server gives one request at most %d MiB"
_MACHINE = Path("/proc/meminfo")
_TOTAL = re.compile(r"MemTotal: +(\d+) kB")
_STRETCH = 256 * 1024  # bytes of a body that are looked at between two turns of the loop: a millisecond
_BYTE = 8  # bytes of memory for each byte of a body: as sent, decoded, encoded, and as answered
_VALUE = 550  # bytes of memory for each value in it: a text, a member of an object, its path in a set of fields
_CONTAINER: Mapping[str, int] = {JSON: 1_400, STRATEGIC: 5_600}
"""Encoding of a body → bytes of memory for each object or list in it; those of JSON where there is no row."""


class Holder(Protocol):
    """What memory is promised to: a request."""

    user: User
    promised: int


async def weight(raw: bytes, encoding: str) -> int:
    """Return about how many bytes of memory it takes to decode, validate and answer a body, at most.

    An object with long lists that are maps takes as much; others take half of it or less.
    """
    values = containers = 0
    turn = Turn()
    for at in range(0, len(raw), _STRETCH):
        some = _counted(raw, at, at + _STRETCH, encoding)
        values, containers = values + some[0], containers + some[1]
        if len(raw) > _STRETCH:
            await turn.give()
    if encoding in {YAML, APPLY}:
        aliased = b"*" in raw and b"&" in raw  # aliases repeat what they stand for
        values = limits.MAX_YAML_NODES if aliased else min(values, limits.MAX_YAML_NODES)
        containers = min(containers, limits.MAX_YAML_NODES)
    return len(raw) * _BYTE + values * _VALUE + containers * _CONTAINER.get(encoding, _CONTAINER[JSON])


def _counted(raw: bytes, start: int, end: int, encoding: str) -> tuple[int, int]:
    """Return how many values, and how many objects and lists, a piece of a body has at most."""
    if encoding == PROTOBUF:
        short = short_messages(raw[start:end])
        return short, short + (min(end, len(raw)) - start) // 16
    values = raw.count(b",", start, end)
    containers = raw.count(b"{", start, end) + raw.count(b"[", start, end)
    if encoding in {YAML, APPLY}:
        values += raw.count(b"\n", start, end)
        containers += raw.count(b"- ", start, end)
    return values, containers


def memory_of_machine(path: Path = _MACHINE) -> int:
    """Return the bytes of memory that this machine has, a lot if it does not tell."""
    try:
        found = _TOTAL.search(path.read_text(encoding="ascii"))
    except OSError:
        found = None
    return int(found[1]) << 10 if found is not None else 1 << 50


class Memory:
    """What is promised to requests, in bytes: in all, and to each user.

    ``room`` is the memory that a control group leaves, by default that of this process; ``total`` the bytes that
    requests may take in all, by default half of what the control group gives, and a quarter of the machine's memory.
    ``workers`` processes share both. ``given`` are the bytes that there are for the whole process.
    """

    __slots__ = ("_room", "_users", "_workers", "given", "promised", "share", "total")

    def __init__(self, room: Room | None = None, total: int = 0, workers: int = 1) -> None:
        self._room = room or Room()
        self._workers = workers
        self.total = total or min(self._room.limit() // 2, memory_of_machine() // 4) // workers
        self.given = min(self._room.limit(), memory_of_machine()) // workers
        self.share = self.total // 4 * 3
        self.promised = 0
        self._users: dict[str, int] = {}

    @property
    def is_bounded(self) -> bool:
        """Whether a control group bounds the memory of this process."""
        return self._room.is_bounded

    def fits(self, more: int) -> bool:
        """Tell whether so many bytes may be taken besides those that are promised."""
        promised = self.promised + more
        return promised <= self.total and self._room.fits(promised * self._workers)

    def hold(self, request: Holder, size: int) -> None:
        """Promise so many bytes to a request in all, instead of what it has; 0 releases them.

        Raises StatusError if that is more: 429 while it is not there, 413 if it never is.
        """
        user, more = request.user.name, size - request.promised
        held = self._users.get(user, 0) + more
        if more > 0:
            if size > self.share:
                raise StatusError(413, "RequestEntityTooLarge", _NEVER % (size >> 20, self.share >> 20), {})
            if held > self.share or not self.fits(more):
                raise status.too_many_requests(_BUSY)
        request.promised = size
        self.promised += more
        if held:
            self._users[user] = held
        else:
            self._users.pop(user, None)
