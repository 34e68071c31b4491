"""Run a command with a simulated slow disk, which delays fsync and fdatasync.

Each call takes the seconds in a file, one call after the other.

    python slow_disk.py FILE COMMAND…

The kernel notifies a child process of these two calls (seccomp user notification, Linux 5.5 or later; needs no
privileges). The command runs in the original process, and the child exits with it. FILE contains seconds and may change
at any time.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys
import time

# numbers of the system calls fsync, fdatasync, seccomp
_NUMBERS = {"x86_64": (74, 75, 317), "aarch64": (82, 83, 277)}
_NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
_FILTER, _NEW_LISTENER = 1, 1 << 3  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
_ASK, _ALLOW = 0x7FC0_0000, 0x7FFF_0000  # SECCOMP_RET_USER_NOTIF, SECCOMP_RET_ALLOW
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
_RECEIVE, _SEND = 0xC050_2100, 0xC018_2101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_STEP = 0.02  # seconds between reads of the file


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def listener() -> int:
    """Intercept this process's system calls from now on; return the notification descriptor.

    Raise OSError if the kernel refuses it.
    """
    fsync, fdatasync, seccomp = _NUMBERS[platform.machine()]
    steps = (
        (_LOAD, 0, 0, 0),  # load the number of the call
        (_JUMP_EQUAL, 2, 0, fsync),
        (_JUMP_EQUAL, 1, 0, fdatasync),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ASK),
    )
    program = _Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    found: int = libc.syscall(seccomp, _FILTER, _NEW_LISTENER, ctypes.byref(program))
    if found < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return found


def delay(file: str) -> float:
    """Return the seconds in the file, 0 if it does not exist."""
    try:
        with open(file) as text:
            return float(text.read() or 0)
    except FileNotFoundError:
        return 0.0


def serve(asked: int, file: str) -> None:
    """Let each call continue after the delay, until the process has exited."""
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while poll.poll()[0][1] & select.POLLIN:
        question = bytearray(80)
        try:
            fcntl.ioctl(asked, _RECEIVE, question)
            began = time.monotonic()
            while time.monotonic() - began < delay(file):
                time.sleep(_STEP)
            fcntl.ioctl(asked, _SEND, struct.pack("QqiI", struct.unpack_from("Q", question)[0], 0, 0, _CONTINUE))
        except FileNotFoundError:
            continue  # the calling process was killed


def main() -> None:
    """Start a child that handles notifications, and execute the command in this process."""
    file, command = sys.argv[1], sys.argv[2:]
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _, (asked,), _, _ = socket.recv_fds(theirs, 1, 1)
        serve(asked, file)
        os._exit(0)
    theirs.close()
    descriptor = listener()
    socket.send_fds(ours, [b"x"], [descriptor])
    os.close(descriptor)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
