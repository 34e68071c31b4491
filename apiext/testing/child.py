"""Start the process of a server.

On Linux, this process ends at the latest when its parent process ends.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

# A new interpreter runs this program, and then executes the command in its place. A preexec_fn would run after a fork,
# and a fork of a process with threads may crash. prctl with 1 (PR_SET_PDEATHSIG) makes the kernel send SIGTERM when the
# parent ends. If the parent has ended before this call, the process ends itself. Python ignores SIGPIPE and SIGXFSZ;
# the command gets their default actions.
DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(ignored, signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""
STARTER = "starter of an apiext server"


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str], keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process that writes into a log file; it inherits the descriptors ``keep``.

    Raise OSError if the process cannot be started. Linux ends the process when the thread that started it ends. So
    outside the main thread, this function starts the process in a new thread, which lives until the process ends.
    """
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), *command]
    if threading.current_thread() is threading.main_thread():
        return _spawn(command, log, environment, keep)
    born: Future[subprocess.Popen[bytes]] = Future()

    def live() -> None:
        try:
            child = _spawn(command, log, environment, keep)
        except BaseException as error:  # ``start`` raises it
            born.set_exception(error)
        else:
            born.set_result(child)
            child.wait()

    threading.Thread(target=live, name=STARTER, daemon=True).start()
    return born.result()


def _spawn(
    command: Sequence[str], log: Path, environment: Mapping[str, str], keep: Sequence[int]
) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, pass_fds=keep
        )
