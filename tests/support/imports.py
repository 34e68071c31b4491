"""Run ``apiext serve`` and report its imports.

The command is ``python -m tests.support.imports REPORT READY_FILE FLAG…``. At the end it writes JSON to REPORT:
``start`` are the modules imported until the server was ready, ``loop`` the modules that the thread of the event loop
imported later, ``threads`` the modules that other threads imported.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

from apiext import launch
from apiext.__main__ import main
from apiext.config import Config


class Recorder:
    """An import finder that finds no module; it records the name and the thread of each import."""

    def __init__(self, ready: Path) -> None:
        self.ready = ready
        self.start: list[str] = []
        self.loop: list[str] = []
        self.threads: list[str] = []

    def note_start(self) -> None:
        if not self.start:
            self.start = sorted(sys.modules)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if self.ready.exists():
            self.note_start()
        if self.start:
            (self.loop if threading.current_thread() is threading.main_thread() else self.threads).append(name)


if __name__ == "__main__":
    recorder = Recorder(Path(sys.argv[2]))
    sys.meta_path.insert(0, recorder)  # type: ignore[arg-type]
    retract = launch.retract

    def retract_noted(config: Config) -> None:
        recorder.note_start()  # the server may stop before its thread imports a module; then the ready file is gone
        retract(config)

    launch.retract = retract_noted
    code = main(["serve", f"--ready-file={sys.argv[2]}", *sys.argv[3:]])
    found = {"start": recorder.start, "loop": recorder.loop, "threads": recorder.threads}
    Path(sys.argv[1]).write_text(json.dumps(found))
    sys.exit(code)
