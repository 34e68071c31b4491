"""Random UUIDs, such as the uids of objects and the audit ids of requests."""

import os

_BATCH = 64


class Uids:
    """A generator of version 4 UUIDs. It generates 64 of them at a time, to save system calls."""

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: list[str] = []

    def next(self) -> str:
        """Return a new UUID as text."""
        try:
            return self._ready.pop()
        except IndexError:
            batch = _batch()
            uid = batch.pop()  # pop before other threads can pop from the list
            self._ready = batch
            return uid


def _batch() -> list[str]:
    text = os.urandom(16 * _BATCH).hex()
    return [
        f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:]}"
        for h in (text[at : at + 32] for at in range(0, len(text), 32))
    ]


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
