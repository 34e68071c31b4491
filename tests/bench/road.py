"""Count how often a request returns to a module that it has left.

The command is ``python -m tests.bench.road [PUT GET watch]``. A server with its store in memory runs in this process
without admission plug-ins. ``sys.setprofile`` records the module of each function that the event loop calls from the
first byte of a request to the last byte of its response. The road is the sequence of these modules, without consecutive
duplicates. ``--show`` prints it. The result is the shortest road of twelve requests, so that counts are exact.

``returns`` is how often the road enters a module that it has left; ``again`` is the number of such modules. With
``--etcd URL`` the store is an etcd, whose work is outside of the process.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import apiext
from apiext import app, cli, config
from apiext.conformance.support.waiting import until

PACKAGE = f"{Path(apiext.__file__).parent}{os.sep}"
TRIES = 12
ARRIVED, ANSWERED = "Incoming.data_received", "ApiHandler._send"
EVENT = frozenset(("storage/fanout.py", "storage/pump.py"))
"""The modules in which the road of a watch event begins."""
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "walks.road.example.com"},
    "spec": {
        "group": "road.example.com",
        "scope": "Namespaced",
        "names": {"plural": "walks", "kind": "Walk"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"a": {"type": "integer"}, "b": {"type": "string", "default": "x"}},
                            }
                        },
                    }
                },
            }
        ],
    },
}
COLLECTION = "/apis/road.example.com/v1/namespaces/default/walks"


def road(calls: Iterable[str]) -> list[str]:
    """Return the modules of a sequence of calls, without consecutive duplicates."""
    return [module for module, _ in groupby(call.partition(":")[0] for call in calls)]


def returns(calls: Iterable[str]) -> int:
    """Return how often a sequence of calls enters a module that it has left."""
    modules = road(calls)
    return len(modules) - len(set(modules))


def again(calls: Iterable[str]) -> int:
    """Return the number of modules that a sequence of calls enters after it has left them."""
    return sum(times > 1 for times in Counter(road(calls)).values())


class Recorder:
    """Records the calls of the event loop's thread, as ``module:function``, during ``of``."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._names: dict[CodeType, str] = {}
        self._wanted = ""

    @contextlib.contextmanager
    def of(self, wanted: str) -> Iterator[None]:
        """Record the calls of a request (PUT, GET), or of a watch event (watch)."""
        self.calls, self._wanted, self._within = [], wanted, False
        yield
        self._wanted = ""

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """The profile function of the event loop's thread (``sys.setprofile``)."""
        if not self._wanted or event not in ("call", "return"):
            return
        name = self._name(frame.f_code)
        if not name:
            return
        if self._wanted == "watch":
            if event == "call" and self._is_of_event(frame):
                self.calls.append(name)
            return
        function = name.partition(":")[2]
        if event == "return":
            self._within = self._within and function != ANSWERED
        elif self._within or function == ARRIVED:
            self._within = True
            self.calls.append(name)

    def _is_of_event(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if self._name(frame.f_code).partition(":")[0] in EVENT:
                return True
            frame = frame.f_back
        return False

    def _name(self, code: CodeType) -> str:
        name = self._names.get(code)
        if name is None:
            inside = code.co_filename.startswith(PACKAGE)
            name = f"{code.co_filename.removeprefix(PACKAGE)}:{_function(code)}" if inside else ""
            self._names[code] = name
        return name


def _function(code: CodeType) -> str:
    return code.co_qualname if sys.version_info >= (3, 11) else code.co_name


class _Client:
    """A client with one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed; return the decoded response."""
        raw = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, raw, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)

    def watch(self) -> http.client.HTTPResponse:
        """Open a watch; return its response."""
        self._connection.request("GET", f"{COLLECTION}?watch=1")
        return self._connection.getresponse()


def _is_ready(path: Path) -> bool:
    return path.exists() and bool(path.read_bytes())


def measured(kinds: Iterable[str], recorder: Recorder, port: int) -> dict[str, list[str]]:
    """Return kind of request → the calls of its shortest road."""
    client, watcher = _Client(port), _Client(port)
    client.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    walk = {"apiVersion": "road.example.com/v1", "kind": "Walk", "metadata": {"name": "a"}, "spec": {"a": 0}}
    shown = until(lambda: _created(port, walk), "an object of the new kind")
    path, found = f"{COLLECTION}/a", dict[str, list[str]]()
    for kind in kinds:
        events = watcher.watch() if kind == "watch" else None
        for _ in range(TRIES):
            shown["spec"]["a"] += 1
            with recorder.of(kind):
                shown = client.ask("GET", path) if kind == "GET" else client.ask("PUT", path, shown)
                if events is not None:
                    events.readline()
                    until(lambda: recorder.calls, "the road of an event")
            if len(recorder.calls) < len(found.get(kind, [*recorder.calls, ""])):
                found[kind] = recorder.calls
    return found


def _created(port: int, walk: Any) -> Any:
    try:
        return _Client(port).ask("POST", COLLECTION, walk)
    except AssertionError:  # the definition is not served yet
        return None


def main() -> None:
    """Serve, send requests from another thread, and print their roads."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.road", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="PUT, GET or watch: one event of a watch")
    parser.add_argument("--show", action="store_true", help="print the modules and functions in their order")
    parser.add_argument("--etcd", metavar="URL", help="keep objects in this etcd instead of memory")
    given = parser.parse_args()
    recorder, found = Recorder(), dict[str, list[str]]()
    with tempfile.TemporaryDirectory() as directory:
        ready = Path(directory) / "ready"
        plugins = ",".join(sorted(config.PLUGINS - config.OPTIONAL_PLUGINS))
        store = f"--etcd-servers={given.etcd}" if given.etcd else "--store=memory"
        flags = ["--insecure", "--port=0", store, "--quiet", f"--data-dir={directory}/data"]
        flags += [f"--ready-file={ready}", f"--disable-admission-plugins={plugins}"]

        def ask() -> None:
            try:
                until(lambda: _is_ready(ready), "a server", within=30)
                port = int(json.loads(ready.read_bytes())["url"].rpartition(":")[2])
                found.update(measured(given.kinds or ("PUT", "GET", "watch"), recorder, port))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=ask).start()
        sys.setprofile(recorder.note)
        app.run(cli.parse_serve(flags, {}, print), print)
        sys.setprofile(None)
    print(f"{'':8}{'calls':>8}{'files':>8}{'returns':>9}{'again':>7}")
    for kind, calls in found.items():
        print(f"{kind:8}{len(calls):8}{len(set(road(calls))):8}{returns(calls):9}{again(calls):7}")
        if given.show:
            for module, part in groupby(calls, lambda call: call.partition(":")[0]):
                print(f"    {module}: {' '.join(call.partition(':')[2] for call in part)}")


if __name__ == "__main__":
    main()
