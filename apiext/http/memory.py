"""The memory gate: what requests may take together, weighed before a body is decoded.

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
from pathlib import Path
from typing import NamedTuple, Protocol

from apiext.auth.user import User
from apiext.documents import limits as documents_limits
from apiext.http.messages import short_messages
from apiext.http.negotiation import PROTOBUF, YAML
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.storage.room import Room
from apiext.turn import Turn

APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
_BUSY = "the server has too little memory left for this request; try again"
_NEVER = "the request needs about %d MiB of memory, and the server gives one request at most %d MiB"
_MACHINE = Path("/proc/meminfo")
_TOTAL = re.compile(r"MemTotal: +(\d+) kB")
_STRETCH = 256 * 1024  # bytes of a body that are looked at between two turns of the loop: half a millisecond
_BYTE = 8  # bytes of memory for each byte of a body: as sent, decoded, encoded, and as answered
_MERGED = (
    2.8  # times the memory of a body that a strategic merge patch takes: it keeps copies of the lists that it merges
)
_SHORT = 600  # bytes of memory for each short text, message or number of a protobuf body
_LONG = 300  # bytes of memory for each _LONG_BYTES of it besides, which a longer message or text may hold
_LONG_BYTES = 16


class Prices(NamedTuple):
    """Bytes of memory for the signs of a JSON text (measured in docs/decisions/0030), and for each node of YAML.

    Two quotes make a string, a colon a member, a bracket or brace a list or an object, a comma another value.
    """

    quote: int
    comma: int
    other: int
    node: int


ITEMS = Prices(quote=250, comma=110, other=270, node=800)
"""Of objects whose lists may have an owner for each item: built-in kinds, list types ``map`` and ``set``, applies."""

WHOLE = Prices(quote=80, comma=40, other=270, node=400)
"""Of custom objects whose lists have one owner each."""

_ALL = bytes(range(256))
_NO_SIGN = _ALL.translate(None, b'{[:,"')  # a text without these bytes is counted in a fraction of the time
_NO_NODE = _ALL.translate(None, b"{[:,?-\n")


class Holder(Protocol):
    """What memory is promised to: a request."""

    user: User
    promised: int


async def weight(raw: bytes, encoding: str, prices: Prices = ITEMS) -> int:
    """Return about how many bytes of memory it takes to decode, validate and answer a body, at most.

    Objects whose lists and members have an owner for each item take as much; others take half of it or less.
    """
    if encoding == APPLY:  # its writer owns each item
        prices = ITEMS
    need = 0
    turn = Turn()
    for at in range(0, len(raw), _STRETCH):
        piece = raw if len(raw) <= _STRETCH else raw[at : at + _STRETCH]
        if encoding in {APPLY, YAML}:
            need += len(piece.translate(None, _NO_NODE)) * prices.node
        elif encoding == PROTOBUF:
            need += short_messages(piece) * _SHORT
        else:
            need += _of_json(piece, prices)
        if turn.over:
            await turn.give()
    if encoding in {APPLY, YAML}:
        most = documents_limits.MAX_YAML_NODES * prices.node
        aliased = b"*" in raw and b"&" in raw  # aliases repeat what they stand for
        need = most if aliased else min(need, most)
    elif encoding == PROTOBUF:  # one of more messages is refused before it is decoded
        need = min(need, documents_limits.MAX_CONTAINERS * _SHORT) + len(raw) // _LONG_BYTES * _LONG
    elif encoding == STRATEGIC:
        need = int(need * _MERGED)
    return len(raw) * _BYTE + need


def _of_json(raw: bytes, prices: Prices) -> int:
    signs = raw.translate(None, _NO_SIGN)
    quotes, commas = signs.count(b'"'), signs.count(b",")
    return quotes * prices.quote + commas * prices.comma + (len(signs) - quotes - commas) * prices.other


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
