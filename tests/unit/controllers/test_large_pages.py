"""Large pages are made where most of one is in use, and nowhere that the system does not want them."""

from __future__ import annotations

import mmap
import resource
from hashlib import sha256
from pathlib import Path

import pytest

from apiext import limits
from apiext.controllers.large_pages import gather

SIZE = 2 << 20
SMALL = resource.getpagesize()
PART = SIZE // SMALL
FULL = int(PART * limits.LARGE_PAGE_FULL)


class Machine:
    """Files as a system shows them, and what was asked of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.asked: list[tuple[int, int]] = []
        self.answer = True
        self.enabled("always [madvise] never")
        (place / "hpage_pmd_size").write_text(f"{SIZE}\n")
        self.lines: list[str] = []
        self.there: dict[int, int] = {}

    def enabled(self, text: str) -> None:
        (self.place / "enabled").write_text(text)

    def mapping(self, start: int, pages: int, there: int, mode: str = "rw-p", file: int = 0, name: str = "") -> None:
        """Map large pages from number ``start`` on, in each of which so many small ones are there."""
        self.lines.append(f"{start * SIZE:x}-{(start + pages) * SIZE:x} {mode} 00000000 fe:01 {file}  {name}".rstrip())
        self.there |= dict.fromkeys(range(start, start + pages), there)

    def gather(self) -> int:
        (self.place / "maps").write_text("\n".join(self.lines) + "\n")
        with (self.place / "pagemap").open("wb") as pages:
            for at, there in self.there.items():
                pages.seek(at * PART * 8)
                pages.write(
                    (1 << 63 | 7).to_bytes(8, "little") * there + b"\x07\xff\xff\xff\xff\xff\xff\x7f" * (PART - there)
                )
        return gather(self.place, self.place, self._collapse)

    def _collapse(self, address: int, size: int) -> bool:
        self.asked.append((address // SIZE, size))
        return self.answer


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_nearly_full_becomes_large(machine: Machine) -> None:
    machine.mapping(1, 2, PART, name="[heap]")
    machine.mapping(4, 1, FULL)
    machine.mapping(6, 1, FULL - 1)
    assert machine.gather() == 3
    assert machine.asked == [(1, SIZE), (2, SIZE), (4, SIZE)]


def test_only_private_memory_without_a_file_does(machine: Machine) -> None:
    machine.mapping(1, 1, PART, mode="r-xp")
    machine.mapping(2, 1, PART, mode="rw-s")
    machine.mapping(3, 1, PART, file=77, name="/usr/lib/a b.so")
    machine.mapping(5, 1, PART, name="[stack]")
    assert machine.gather() == 0
    assert machine.asked == []


def test_only_whole_ones_do(machine: Machine) -> None:
    machine.mapping(1, 4, PART)
    begin, end = SIZE + SMALL, 4 * SIZE - SMALL
    machine.lines = [f"{begin:x}-{end:x} rw-p 00000000 00:00 0"]
    assert machine.gather() == 1
    assert machine.asked == [(2, SIZE)]
    machine.lines = [f"{SIZE + SMALL:x}-{2 * SIZE + SMALL:x} rw-p 00000000 00:00 0"]
    assert machine.gather() == 0


def test_what_the_system_refuses_is_not_counted(machine: Machine) -> None:
    machine.mapping(1, 2, PART)
    machine.answer = False
    assert machine.gather() == 0
    assert len(machine.asked) == 2


@pytest.mark.parametrize("missing", ["enabled", "hpage_pmd_size", "maps", "pagemap"])
def test_without_what_it_takes_nothing_is_done(machine: Machine, missing: str) -> None:
    machine.mapping(1, 2, PART)
    assert machine.gather() == 2
    (machine.place / missing).unlink()
    assert gather(machine.place, machine.place, machine._collapse) == 0
    assert len(machine.asked) == 2


@pytest.mark.parametrize("line", ["", "nothing", "1-2 rw-p 0 0:0", "x-y rw-p 0 0:0 0", f"{SIZE:x} rw-p 0 0:0 0"])
def test_what_cannot_be_read_ends_it(machine: Machine, line: str) -> None:
    machine.mapping(1, 2, PART)
    machine.lines.append(line)
    assert machine.gather() == 2


def test_never_is_never(machine: Machine) -> None:
    machine.mapping(1, 2, PART)
    machine.enabled("always madvise [never]")
    assert machine.gather() == 0
    assert machine.asked == []


def test_what_is_in_memory_stays() -> None:
    with mmap.mmap(-1, 4 * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"some text of no length that divides a page " * (4 * SIZE // 43))
        before = sha256(memory).digest()
        made = gather()
        assert sha256(memory).digest() == before
        if not made:
            pytest.skip("this system has no large pages, or gives none now")
        assert _large() >= made * SIZE // 1024


def _large() -> int:
    """Return the KiB of this process that lie in large pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))
