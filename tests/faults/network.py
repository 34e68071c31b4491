"""Create network namespaces, one for each simulated machine, with links that can fail.

The namespaces have no names, so that nothing remains after a test is killed. Packets can only go between them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.support.processes import ROOT

_NEW_NET = 0x4000_0000  # CLONE_NEWNET
_SET_DEVICE = 0x4004_54CA  # TUNSETIFF
_TUN_BARE = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
DEVICE = "wire"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


class Network:
    """The simulated machines by name, and the links between them."""

    def __init__(self, names: Sequence[str], spaces: Sequence[int], wire: subprocess.Popen[bytes]) -> None:
        self._names, self._spaces, self._wire = list(names), spaces, wire

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        return _address(self._names.index(name))

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Enter a machine: connections, threads and processes that start in this block belong to it."""
        with open("/proc/thread-self/ns/net", "rb") as before:
            _check(_libc.setns(self._spaces[self._names.index(name)], _NEW_NET), "setns")
            try:
                yield
            finally:
                _check(_libc.setns(before.fileno(), _NEW_NET), "setns")

    def link(self, source: str | None, target: str | None, **what: float) -> None:
        """Replace the settings of one direction (Link of wire.py); None means all machines."""
        ends = [None if name is None else self._names.index(name) for name in (source, target)]
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.write(json.dumps([*ends, what]).encode() + b"\n")
        self._wire.stdin.flush()
        assert self._wire.stdout.readline() == b"\n", "the wire died"

    def between(self, one: str, others: Sequence[str], **what: float) -> None:
        """Replace the settings of both directions between one machine and the machines ``others``."""
        for other in others:
            self.link(one, other, **what)
            self.link(other, one, **what)

    def cut(self, one: str, others: Sequence[str]) -> None:
        """Drop all packets between one machine and the machines ``others``, without errors."""
        self.between(one, others, up=False)

    def heal(self) -> None:
        """Remove all faults of all links."""
        self.link(None, None)


def _address(number: int) -> str:
    return f"10.177.0.{number + 1}"


def _machine(number: int) -> tuple[int, int]:
    """Create a namespace with a TUN device; return descriptors of both.

    The calling thread stays in the namespace.
    """
    _check(_libc.unshare(_NEW_NET), "a network namespace")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _SET_DEVICE, struct.pack("16sH22x", DEVICE.encode(), _TUN_BARE))
    for words in (
        "link set lo up",
        f"addr add {_address(number)}/24 dev {DEVICE}",
        f"link set {DEVICE} up txqueuelen 1000",
    ):
        subprocess.run(["ip", *words.split()], check=True, capture_output=True)
    return device, os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def network(names: Sequence[str], seed: int = 1) -> Iterator[Network]:
    """Create connected machines; skip the test with the reason if the system does not allow it."""
    made: list[tuple[int, int]] = []
    failed: list[Exception] = []

    def make(number: int) -> None:
        try:
            made.append(_machine(number))
        except (OSError, subprocess.CalledProcessError) as error:
            failed.append(error)

    try:
        for number in range(len(names)):
            thread = threading.Thread(target=make, args=(number,))
            thread.start()
            thread.join()
            if failed:
                print(f"no network namespaces here: {failed[0]}")
                pytest.skip(f"no network namespaces here, which root and /dev/net/tun give: {failed[0]}")
        devices = [device for device, _ in made]
        command = [sys.executable, "-m", "tests.faults.wire", str(seed), *map(str, devices)]
        wire = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=devices, cwd=ROOT, bufsize=0
        )
        try:
            yield Network(names, [space for _, space in made], wire)
        finally:
            assert wire.stdin is not None
            assert wire.stdout is not None
            wire.stdin.close()
            wire.wait(10)
            wire.stdout.close()
    finally:
        for pair in made:
            for descriptor in pair:
                os.close(descriptor)
