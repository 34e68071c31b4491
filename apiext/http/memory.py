"""The memory budget of requests: a request reserves memory before its body is decoded.

From a body, the server creates a document, a normalized document, sets of fields and a response. They need up to a
hundred times the bytes of the body. Several hundred requests run concurrently, so bodies of the allowed size could
exceed the memory, and the kernel would kill the process. So the server first estimates the memory that a request needs:
the ``weight`` of its body and of the stored object that it changes. Then it reserves this memory with ``Memory.hold``.
This call raises a 429 while other requests have reserved the memory, and a 413 if the request needs more than the share
of one user. All requests of a user together can reserve at most this share, so a user cannot block all users.

``http.resources`` reserves memory for bodies and stored objects, ``http.connection`` for responses, which stay in
memory while a slow client reads. ``http.connection.ApiHandler.answer`` releases the memory after the response. Bodies
and stored objects up to ``limits.UNWEIGHED`` bytes need no reservation, since the number of concurrent requests is
limited.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

from apiext.auth.user import User
from apiext.documents import limits as documents_limits
from apiext.http import limits
from apiext.http.messages import short_messages
from apiext.http.negotiation import PROTOBUF, YAML
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.free_memory import FreeMemory
from apiext.verbs.call import Page

APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
_BUSY = "the server has too little memory left for this request; try again"
_NEVER = "the request needs about %d MiB of memory, and the server gives one request at most %d MiB"
_MACHINE = Path("/proc/meminfo")
_TOTAL = re.compile(r"MemTotal: +(\d+) kB")
_STRETCH = 256 * 1024  # bytes of a body that are estimated between two yields to the event loop: 0.5 ms
_BYTE = 8  # bytes of memory for each byte of a body: as received, decoded, encoded and in the response
_MERGED = 2.8  # factor for a strategic merge patch, which copies the lists that it merges
_SHORT = 600  # bytes of memory for each short string, message or number of a protobuf body
_LONG = 300  # bytes of memory for every _LONG_BYTES bytes of a protobuf body: for its longer messages and strings
_LONG_BYTES = 16


class Prices(NamedTuple):
    """Bytes of memory for each punctuation character of JSON, and for each node of YAML.

    See docs/decisions/0030. Two quotes stand for a string, a colon for a field, a bracket or brace for an array or
    object, a comma for a value.
    """

    quote: int
    comma: int
    other: int
    node: int


ITEMS = Prices(quote=250, comma=110, other=270, node=800)
"""For objects whose list items may have field managers: built-in kinds, list types ``map`` and ``set``, and applies."""

WHOLE = Prices(quote=80, comma=40, other=270, node=400)
"""For custom objects in which each list has one set of field managers."""

_ALL = bytes(range(256))
_NO_SIGN = _ALL.translate(None, b'{[:,"')  # counting is much faster without the other bytes
_NO_NODE = _ALL.translate(None, b"{[:,?-\n")


class Holder(Protocol):
    """A request that reserves memory; ``promised`` is the number of reserved bytes."""

    user: User
    promised: int


async def weight(raw: bytes, encoding: str, prices: Prices = ITEMS) -> int:
    """Return an upper estimate of the bytes of memory for a body and its response.

    It covers decoding and validation of the body, and encoding of the response. ``prices`` is WHOLE for custom objects
    in which each list has one set of field managers: they need less memory.
    """
    if encoding == APPLY:  # an apply may record its manager for each list item
        prices = ITEMS
    need = 0
    loop_budget = LoopBudget()
    for at in range(0, len(raw), _STRETCH):
        piece = raw if len(raw) <= _STRETCH else raw[at : at + _STRETCH]
        if encoding in {APPLY, YAML}:
            need += len(piece.translate(None, _NO_NODE)) * prices.node
        elif encoding == PROTOBUF:
            need += short_messages(piece) * _SHORT
        else:
            need += _of_json(piece, prices)
        if loop_budget.exhausted:
            await loop_budget.pause()
    if encoding in {APPLY, YAML}:
        most = documents_limits.MAX_YAML_NODES * prices.node
        aliased = b"*" in raw and b"&" in raw  # an alias repeats its node
        need = most if aliased else min(need, most)
    elif encoding == PROTOBUF:  # a body with more messages is refused before it is decoded
        need = min(need, documents_limits.MAX_CONTAINERS * _SHORT) + len(raw) // _LONG_BYTES * _LONG
    elif encoding == STRATEGIC:
        need = int(need * _MERGED)
    return len(raw) * _BYTE + need


def _of_json(raw: bytes, prices: Prices) -> int:
    signs = raw.translate(None, _NO_SIGN)
    quotes, commas = signs.count(b'"'), signs.count(b",")
    return quotes * prices.quote + commas * prices.comma + (len(signs) - quotes - commas) * prices.other


def memory_of_machine(path: Path = _MACHINE) -> int:
    """Return the memory of this machine in bytes, 2**50 if it is unknown."""
    try:
        found = _TOTAL.search(path.read_text(encoding="ascii"))
    except OSError:
        found = None
    return int(found[1]) << 10 if found is not None else 1 << 50


class Memory:
    """Reserved bytes of all requests, and of each user.

    ``free_memory`` reports the memory of a control group, by default that of this process. ``workers`` is the number of
    processes. The attributes are in bytes. ``total`` is the budget of the requests of this process: by default, half of
    the control group's limit, or a quarter of the machine's memory if that is less, divided by ``workers``. ``given``
    is the memory that this process may use, ``share`` the budget of one user, and ``promised`` the reserved memory.
    """

    __slots__ = ("_memory", "_users", "_workers", "given", "promised", "share", "total")

    def __init__(self, free_memory: FreeMemory | None = None, total: int = 0, workers: int = 1) -> None:
        self._memory = free_memory or FreeMemory()
        self._workers = workers
        self.total = total or min(self._memory.limit() // 2, memory_of_machine() // 4) // workers
        self.given = min(self._memory.limit(), memory_of_machine()) // workers
        self.share = self.total // 4 * 3
        self.promised = 0
        self._users: dict[str, int] = {}  # user → reserved bytes

    @property
    def is_limited(self) -> bool:
        """Report whether a control group limits the memory of this process."""
        return self._memory.is_limited

    def fits(self, more: int) -> bool:
        """Report whether ``more`` bytes can be reserved in addition to the reserved memory."""
        promised = self.promised + more
        return promised <= self.total and self._memory.fits(promised * self._workers)

    def hold(self, request: Holder, size: int) -> None:
        """Change the reservation of a request to ``size`` bytes; 0 releases it.

        Raise a 413 if ``size`` exceeds the share of a user. Raise a 429 if the requests of this user would exceed their
        share, or if too little memory is free.
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


_COPIES = 2  # copies of the objects while their list is encoded: the separate objects, and the joined list
_UNBOUNDED = nullcontext()
_NO_MEMORY = "the server has too little memory left for this list; try again, ask for pages, or for plain JSON"


class ListBudget:
    """Limits the memory of lists.

    The semaphore ``slots`` limits the number of long lists encoded concurrently.
    """

    def __init__(self, memory: Memory) -> None:
        self.slots = asyncio.Semaphore(limits.LISTS_AT_ONCE)
        self._memory = memory

    def fits(self, size: int) -> bool:
        """Report whether ``size`` bytes can be reserved in addition to the reserved memory."""
        return self._memory.fits(size)

    def held(self, page: Page) -> AbstractContextManager[None]:
        """Reserve memory for the list of a page while it is encoded.

        Raise a 429 if there is not enough memory. Reserve nothing if no control group limits the memory.
        """
        return self._holding(_COPIES * page.size()) if self._memory.is_limited else _UNBOUNDED

    @contextmanager
    def _holding(self, size: int) -> Iterator[None]:
        if size and not self.fits(size):
            raise status.too_many_requests(_NO_MEMORY)
        self._memory.promised += size
        try:
            yield
        finally:
            self._memory.promised -= size
