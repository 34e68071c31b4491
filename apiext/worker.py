"""A worker: one of several processes behind one port.

Only the supervisor starts a worker, with the command ``python -m apiext.worker``. Standard input is a socket to the
supervisor. The supervisor sends the configuration, and gets one line once this worker serves.
"""

import ctypes
import gc
import json
import os
import pickle
import signal
import sys

from apiext import cli, logs
from apiext.config import Config
from apiext.launch import Ready

CHANNEL = 0
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serve until the supervisor stops this process or dies; return the exit code.

    The last argument is the process id of the supervisor.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(arguments[-1]):  # the supervisor died before prctl was called
        return cli.EXIT_FAILURE
    gc.disable()  # imports create little garbage; app.run enables the collector
    logs.open_log()
    from apiext import app  # slow, so it is imported before the configuration arrives

    with open(CHANNEL, "rb", closefd=False) as channel:
        pickled = channel.read()
    if not pickled:
        return cli.EXIT_FAILURE
    config: Config = pickle.loads(pickled)
    return app.run(config, logs.warn if config.first else _ignore_warning, _announce)


def _ignore_warning(text: str) -> None:
    """Ignore a warning, since the first worker logs it, too."""


def _announce(config: Config, ready: Ready) -> None:
    os.write(CHANNEL, json.dumps([ready.url, ready.kubeconfig]).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
