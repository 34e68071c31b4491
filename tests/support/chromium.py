"""Run Chromium without a window, and control it with the DevTools protocol."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket

from apiext.conformance.support.waiting import until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
    "--ignore-certificate-errors", "--remote-debugging-port=0",
)  # fmt: skip
WITHIN = 60.0


class Page:
    """A page of the browser."""

    def __init__(self, address: str) -> None:
        self.errors: list[str] = []
        self.prompted = ""
        """The text that is entered into each dialog of the page."""
        self._line = websocket.create_connection(address, timeout=WITHIN, suppress_origin=True)
        self._numbers = itertools.count(1)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # only a page with focus can use the clipboard

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = self._send(method, parameters)
        while (told := self._read()).get("id") != number:
            pass
        assert "error" not in told, (method, told)
        result: dict[str, Any] = told["result"]
        return result

    def open(self, url: str) -> None:
        """Open a URL and wait until its page is loaded."""
        number = self._send("Page.navigate", {"url": url})
        while (told := self._read()).get("method") != "Page.loadEventFired":
            assert told.get("id") != number or "errorText" not in told["result"], told

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; await a promise."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        told = self.call("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def shows(self, text: str) -> None:
        """Wait until the page contains a text."""
        until(lambda: text in self.evaluate("document.body.innerText"), f"the page shows {text!r}", WITHIN)

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return number

    def _read(self) -> dict[str, Any]:
        """Return the next message. Answer dialogs, and add errors to ``errors``."""
        told: dict[str, Any] = json.loads(self._line.recv())
        parameters = told.get("params", {})
        match told.get("method"):
            case "Page.javascriptDialogOpening":
                self._send("Page.handleJavaScriptDialog", {"accept": True, "promptText": self.prompted})
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
        return told


@contextlib.contextmanager
def browser_page(directory: Path) -> Iterator[Page]:
    """Run a browser with one page; skip the test if no browser is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("chromium is not on this machine")
    told = directory / "profile" / "DevToolsActivePort"
    command = [program, *FLAGS, f"--user-data-dir={told.parent}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            until(lambda: told.exists() and told.read_text(), "the browser starts", WITHIN)
            with urllib.request.urlopen(f"http://127.0.0.1:{told.read_text().splitlines()[0]}/json/list") as answer:
                address = next(each for each in json.load(answer) if each["type"] == "page")["webSocketDebuggerUrl"]
            with contextlib.closing(Page(address)) as page:
                yield page
        finally:
            running.terminate()
