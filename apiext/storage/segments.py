"""The bytes of a list: joined views, and deflate blocks of one gzip member.

Each chunk has its own joined views. A view is the JSON of an object as clients of one version get it. A chunk is a
segment of about a hundred entries.
"""

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from time import perf_counter

from isal import isal_zlib

from apiext import limits as server_limits
from apiext.meta.time import Ages
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.aged_forms import AgedForm, Placeholders, ends_of
from apiext.storage.heap import HEAP
from apiext.storage.joined_views import JoinedViews
from apiext.storage.snapshot import Chunk, Piece, size_of
from apiext.storage.store import Entry, Viewer, ViewSource, bytes_of, share_joined_views

_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_GZIP_END = b"\x03\x00"
_COMMA_BLOCK = b"\x00\x01\x00\xfe\xff,"  # an uncompressed deflate block that contains one comma
_COMMA_CRC: int = isal_zlib.crc32(b",")
_NONE: Mapping[Entry, ViewSource] = {}

Convert = Callable[[Sequence[Entry]], Awaitable[Sequence[ViewSource]]]
Make = Callable[[Entry], bytes | Awaitable[bytes]]
"""Encodes an entry. Returns an awaitable if a thread encodes the entry, since it is large."""


class Segments:
    """The views of one list.

    Later changes of the collection do not affect the list. Views are made on first use.
    """

    __slots__ = ("_joined", "_pieces", "_viewer", "count", "next", "remaining")

    def __init__(self, pieces: Sequence[Piece], viewer: Viewer, remaining: int = 0, following: str = "") -> None:
        self.remaining = remaining
        self.next = following
        self._pieces = pieces
        self._viewer = viewer
        self._joined: list[bytes] = []
        self.count = size_of(pieces)

    @property
    def entries(self) -> list[Entry]:
        """The entries, for lists that are not sent as views."""
        return [entry for chunk, start, stop in self._pieces for entry in chunk.entries[start:stop]]

    @property
    def pending(self) -> int:
        """The number of views that are not made yet.

        A chunk counts as made if it can reuse the views of its base (see Chunk). If many views are not made, call
        ``prepare``, which yields to the event loop.
        """
        return sum(
            stop - start
            for chunk, start, stop in self._pieces[len(self._joined) :]
            if not chunk.has_views(self._viewer) and (chunk.base is None or not chunk.base.has_views(self._viewer))
        )

    async def prepare(self, convert: Convert | None = None) -> None:
        """Make all views, and yield to the event loop after each half of server_limits.LOOP_BUDGET.

        ``convert`` returns the views of entries that have no cached view.
        """
        while convert is not None and len(self._joined) < len(self._pieces):
            await self._convert(convert)
        # The loop has a deadline, since a call of a LoopBudget takes longer than a piece whose views exist already.
        until = perf_counter() + server_limits.LOOP_BUDGET / 2
        for piece in self._pieces[len(self._joined) :]:
            self._joined.append(_join(piece, self._viewer))
            if perf_counter() > until:
                await asyncio.sleep(0)
                until = perf_counter() + server_limits.LOOP_BUDGET / 2

    async def _convert(self, convert: Convert) -> None:
        """Convert the entries without views of the next pieces, then join the views of these pieces.

        The entries have at most limits.CONVERTED_AT_ONCE bytes, or belong to one piece.
        """
        pieces: list[Piece] = []
        wanted: list[Entry] = []
        size = 0
        for piece in self._pieces[len(self._joined) :]:
            lacking = _lacking(piece, self._viewer)
            size += bytes_of(lacking)
            if pieces and size > limits.CONVERTED_AT_ONCE:
                break
            pieces.append(piece)
            wanted += lacking
        made = dict(zip(wanted, await convert(wanted), strict=True)) if wanted else {}
        loop_budget = LoopBudget()
        for piece in pieces:
            if not made.keys() >= set(_lacking(piece, self._viewer)):
                return  # meanwhile another list replaced the cached views of the chunk; the caller converts again
            self._joined.append(_join(piece, self._viewer, made))
            await loop_budget.pause()

    async def in_form(self, form: Hashable, maker: Callable[[Ages], Make], now: float) -> list[bytes]:
        """Return, for each piece, its entries in another form, such as table rows, joined by commas.

        Yields to the event loop. ``maker`` returns the function that encodes an entry. Chunks cache the encoded entries
        by ``form``. ``now`` is the time for which ages are computed, in seconds since the epoch.
        """
        found: list[bytes] = []
        loop_budget = LoopBudget()
        for chunk, start, stop in self._pieces:
            known = chunk.forms.get(form)
            if known is not None:
                found.append(known.at(now).part(start, stop))
                await loop_budget.pause()
                continue
            whole = 2 * (stop - start) >= len(chunk.keys)
            placeholders = Placeholders()
            make = maker(placeholders)
            items, counts = list[bytes](), array("I")
            for entry in chunk.entries if whole else chunk.entries[start:stop]:
                made = make(entry)
                items.append(made if isinstance(made, bytes) else await made)
                counts.append(len(placeholders.stamps))
                await loop_budget.pause()
            known = AgedForm(items, counts, placeholders.stamps)
            if not whole:
                found.append(known.at(now).joined)
                continue
            while len(chunk.forms) >= limits.FORMS:
                del chunk.forms[next(iter(chunk.forms))]
            chunk.forms[form] = known
            found.append(known.at(now).part(start, stop))
        return found

    @property
    def parts(self) -> list[bytes]:
        """The content of the array ``items``: joined views, and commas between the pieces."""
        joined = self._all()
        parts = [b","] * (2 * len(joined) - 1)
        parts[::2] = joined
        return parts

    @property
    def size(self) -> int:
        """The number of bytes of ``parts``."""
        joined = self._all()
        return sum(map(len, joined)) + max(0, len(joined) - 1)

    @property
    def uncompressed(self) -> int:
        """The number of bytes without a cached deflate block.

        Above http_limits.GZIP_INLINE, call ``gzip`` in a thread.
        """
        return sum(
            len(joined)
            for joined, piece in zip(self._all(), self._pieces, strict=True)
            if _known_block(piece, joined) is None
        )

    def gzip(self, head: bytes, tail: bytes) -> list[bytes]:
        """Return head, items and tail as one gzip member.

        A thread may call this method after ``parts`` or ``prepare``.
        """
        out = [_GZIP_HEAD]
        block, crc = _deflate(head)
        out.append(block)
        size = len(head)
        for number, (joined, piece) in enumerate(zip(self._all(), self._pieces, strict=True)):
            if number:
                out.append(_COMMA_BLOCK)
                crc = isal_zlib.crc32_combine(crc, _COMMA_CRC, 1)
                size += 1
            block, piece_crc = _block(piece, joined)
            out.append(block)
            crc = isal_zlib.crc32_combine(crc, piece_crc, len(joined))
            size += len(joined)
        block, tail_crc = _deflate(tail)
        crc = isal_zlib.crc32_combine(crc, tail_crc, len(tail))
        size += len(tail)
        out += (block, _GZIP_END, crc.to_bytes(4, "little"), (size & 0xFFFFFFFF).to_bytes(4, "little"))
        return out

    def _all(self) -> list[bytes]:
        joined = self._joined
        if len(joined) < len(self._pieces):
            joined += [_join(piece, self._viewer) for piece in self._pieces[len(joined) :]]
        return joined


def _lacking(piece: Piece, viewer: Viewer) -> list[Entry]:
    """Return the entries whose views ``_join`` must make.

    There are none if the chunk has cached joined views. If the piece has less than half of its chunk, the result is the
    entries of the piece. Otherwise it is the entries of the chunk, without those whose views can be reused from the
    base of the chunk.
    """
    chunk, start, stop = piece
    if chunk.has_views(viewer):
        return []
    entries, base = chunk.entries, chunk.base
    if 2 * (stop - start) < len(chunk.keys):
        return entries[start:stop]
    if base is not None and base.viewer is viewer and base.ends is not None:
        left, right = _common(entries, base.entries)
        return entries[left : len(entries) - right]
    return entries


def _join(piece: Piece, viewer: Viewer, converted: Mapping[Entry, ViewSource] = _NONE) -> bytes:
    chunk, start, stop = piece
    if chunk.viewer is not viewer:
        if 2 * (stop - start) < len(chunk.keys):
            return b",".join(_views(chunk.entries[start:stop], viewer, converted))
        _fill(chunk, viewer, converted)
    if stop - start == len(chunk.keys):
        return chunk.joined
    ends = chunk.ends
    assert ends is not None
    return chunk.joined[ends[start - 1] + 1 if start else 0 : ends[stop - 1]]


def _views(entries: Sequence[Entry], viewer: Viewer, converted: Mapping[Entry, ViewSource]) -> list[bytes]:
    if not converted:
        return [entry.uncached_view(viewer) for entry in entries]
    return [converted[entry].at(entry.revision) for entry in entries]


def _fill(chunk: Chunk, viewer: Viewer, converted: Mapping[Entry, ViewSource]) -> None:
    """Join the views of a chunk.

    Reuse the views of the base for entries that both the chunk and its base have at the start or the end.
    """
    entries, base, source = chunk.entries, chunk.base, chunk.source
    if source is not None and source.viewer is viewer:
        chunk.joined, chunk.ends, chunk.viewer = source.text, source.ends, viewer
        chunk.block = chunk.base = None
        return
    if base is not None and base.viewer is viewer and base.ends is not None:
        left, right = _common(entries, base.entries)
        views = _cut(base, 0, left)
        views += _views(entries[left : len(entries) - right], viewer, converted)
        views += _cut(base, len(base.entries) - right, len(base.entries))
    else:
        views = _views(entries, viewer, converted)
    # Copy even a single view, since a byte string from orjson occupies a multiple of its length in memory.
    chunk.joined = b",".join(views) if len(views) > 1 else b"%b" % views[0]
    chunk.ends = ends_of(views)
    chunk.viewer = viewer
    chunk.block = chunk.base = None
    if not converted:
        source = JoinedViews(viewer, chunk.keys, chunk.joined, chunk.ends)
        HEAP.freed(share_joined_views(source, entries, views))
        if source.users:
            chunk.source = source


def _common(new: list[Entry], old: list[Entry]) -> tuple[int, int]:
    shorter = min(len(new), len(old))
    left = 0
    while left < shorter and new[left] is old[left]:
        left += 1
    right = 0
    while right < shorter - left and new[-1 - right] is old[-1 - right]:
        right += 1
    return left, right


def _cut(chunk: Chunk, start: int, stop: int) -> list[bytes]:
    ends = chunk.ends
    assert ends is not None
    joined = chunk.joined
    return [joined[ends[at - 1] + 1 if at else 0 : ends[at]] for at in range(start, stop)]


def _known_block(piece: Piece, joined: bytes) -> tuple[bytes, int] | None:
    known = piece.chunk.block
    return known[1:] if known is not None and known[0] is joined else None


def _block(piece: Piece, joined: bytes) -> tuple[bytes, int]:
    known = _known_block(piece, joined)
    if known is None:
        known = _deflate(joined)
        if piece.chunk.joined is joined:
            piece.chunk.block = (joined, *known)  # a single assignment, since this code may run in a thread
    return known


def _deflate(data: bytes) -> tuple[bytes, int]:
    compressor = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush(isal_zlib.Z_SYNC_FLUSH), isal_zlib.crc32(data)
