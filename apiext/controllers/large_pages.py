"""The heap in large pages, where Linux has them: what a request touches is found with fewer looks into page tables.

A server that sleeps until the next request finds little of these tables in the caches of the processor, least of all
on a virtual machine: a create takes 4 % less. What was loaded lies so dense in memory that it hardly grows by it.
"""

import ctypes
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from apiext import limits

_COLLAPSE = 25  # MADV_COLLAPSE, of Linux 6.1: one large page in place of small ones, with what is in them
_ENTRY = 8  # bytes of an entry of pagemap; the highest bit of the last one tells that there is a page
_ABSENT = bytes(range(128))
_PROCESS = Path("/proc/self")
_SYSTEM = Path("/sys/kernel/mm/transparent_hugepage")

Collapse = Callable[[int, int], bool]
"""Address and bytes of a stretch of memory → whether it is a large page now."""


def gather(process: Path = _PROCESS, system: Path = _SYSTEM, collapse: Collapse | None = None) -> int:
    """Make large pages of those stretches of the heap that are nearly full; return how many.

    None where the system has no such pages, or does not want them, or does not tell how memory is laid out. It takes
    some 5 ms a page, in which whoever touches it stands still: call it in a thread, and while nobody is waited for.
    """
    size, collapse = _size(system), collapse or _collapse()
    made = 0
    if not size or collapse is None:
        return made
    try:
        maps = (process / "maps").read_text(errors="replace")
        with (process / "pagemap").open("rb", buffering=0) as pages:
            for address in _stretches(maps, size):
                if _is_dense(pages.fileno(), address, size):
                    made += collapse(address, size)
    except (OSError, ValueError):  # it may look otherwise one day
        pass
    return made


def _size(system: Path) -> int:
    """Return the bytes of a large page, 0 for none."""
    try:
        if "[never]" in (system / "enabled").read_text():
            return 0
        return int((system / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0


def _collapse() -> Collapse | None:
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None:
        return None
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return lambda address, size: advise(address, size, _COLLAPSE) == 0


def _stretches(maps: str, size: int) -> Iterator[int]:
    """Yield the addresses of what could be large pages in private memory without a file, the main stack left out."""
    for line in maps.splitlines():
        place, mode, _, _, file, *name = line.split(maxsplit=5)
        if mode != "rw-p" or file != "0" or (name and name[0] != "[heap]"):
            continue
        start, end = (int(part, 16) for part in place.split("-"))
        yield from range(-(-start // size) * size, end // size * size, size)


def _is_dense(pages: int, address: int, size: int) -> bool:
    small = resource.getpagesize()
    entries = os.pread(pages, size // small * _ENTRY, address // small * _ENTRY)
    there = entries[_ENTRY - 1 :: _ENTRY].translate(None, _ABSENT)
    return len(there) * small >= size * limits.LARGE_PAGE_FULL
