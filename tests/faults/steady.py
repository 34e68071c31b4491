"""Steady load: mixed operations at a fixed rate, with many watchers.

The duration of each operation is recorded.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import selectors
import socket
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from apiext.conformance.support.definitions import Resource
from apiext.conformance.support.http_client import APPLY, MERGE
from apiext.conformance.support.waiting import pause

NAMESPACES, OBJECTS = 10, 300
WORKERS = 6
OWN = 20  # maximum number of existing objects that a worker has created
JSON = "application/json"
_EVENT = re.compile(rb'"type":"[AM].*?"sent":([0-9]+)')  # events of writes by this load


class Took:
    """A histogram of durations in milliseconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._counts[int(seconds * 1000)] += 1

    def __len__(self) -> int:
        return sum(self._counts.values())

    def share(self, share: float) -> float:
        """Return the milliseconds that this share of the durations did not exceed."""
        left = share * len(self)
        for millisecond in sorted(self._counts):
            left -= self._counts[millisecond]
            if left <= 0:
                return millisecond + 1.0
        return 0.0


class Steady:
    """One run of the load on one resource."""

    def __init__(self, widgets: Resource, rate: float, watchers: int, seed: int) -> None:
        self.widgets, self.rate, self.seed = widgets, rate, seed
        self.reads, self.writes, self.deliveries = Took(), Took(), Took()
        self.wrong: list[str] = []
        self.over = threading.Event()
        self._address = urlsplit(widgets.api.url)
        self._namespaces = [f"steady-{number}" for number in range(NAMESPACES)]
        self._threads: list[threading.Thread] = []
        self._watchers = watchers

    def start(self) -> None:
        """Create namespaces and objects, open the watches and start the workers."""
        api = self.widgets.api
        for namespace in self._namespaces:
            api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).expect(201)
        for number in range(OBJECTS):
            self.widgets.create(f"o{number}", self._namespaces[number % NAMESPACES], size=number)
        places = itertools.cycle((None, *self._namespaces[:1], None, *self._namespaces[1:2]))
        streams = [self._opened(place) for place, _ in zip(places, range(self._watchers), strict=False)]
        self._run(self._read_streams, streams)
        for number in range(WORKERS):
            self._run(self._work, number)

    def finish(self) -> None:
        """Stop, and wait for all threads."""
        self.over.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, target: Any, argument: Any) -> None:
        def guarded() -> None:
            try:
                target(argument)
            except Exception as failure:
                self.wrong.append(f"{target.__name__} died of {failure!r}")

        self._threads.append(threading.Thread(target=guarded, daemon=True))
        self._threads[-1].start()

    # ------------------------------------------------------------------ watchers

    def _opened(self, namespace: str | None) -> socket.socket:
        line = socket.create_connection((self._address.hostname or "", self._address.port or 80), timeout=30)
        path = self.widgets.path("", namespace)
        line.sendall(
            f"GET {path}?watch=true&resourceVersion=0&allowWatchBookmarks=true HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        return line

    def _read_streams(self, lines: list[socket.socket]) -> None:
        waiting = selectors.DefaultSelector()
        for line in lines:
            waiting.register(line, selectors.EVENT_READ)
        while not self.over.is_set():
            for key, _ in waiting.select(0.5):
                stream: Any = key.fileobj
                data = stream.recv(1 << 18)
                if not data:
                    self.wrong.append("a watch ended")
                    waiting.unregister(stream)
                now = time.time()
                for sent in _EVENT.findall(data):
                    self.deliveries.add(now - int(sent) / 1000)
        for line in lines:
            line.close()

    # ------------------------------------------------------------------ clients

    def _work(self, number: int) -> None:
        worker = Worker(self, number)
        turn = time.monotonic()
        while not self.over.is_set():
            turn += WORKERS / self.rate
            pause(turn - time.monotonic())
            worker.step()
        worker.line.close()


class Worker:
    """A client with one persistent connection."""

    def __init__(self, load: Steady, number: int) -> None:
        self._load = load
        self._chance = random.Random(f"{load.seed}/{number}")
        self._made: list[str] = []
        self._names = (f"w{number}-{count}" for count in itertools.count())
        self._own = f"steady-{number % NAMESPACES}"
        address = urlsplit(load.widgets.api.url)
        self.line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)

    def step(self) -> None:
        """Do one operation: a third are writes, most of which change an existing object."""
        choose, widgets = self._chance, self._load.widgets
        number = choose.randrange(OBJECTS)
        namespace = f"steady-{number % NAMESPACES}"
        dice = choose.random()
        if dice < 0.20:
            self._write("PATCH", widgets.path(f"o{number}", namespace), {"spec": self._spec()}, MERGE)
        elif dice < 0.25:
            body = {**widgets.make(f"o{number}"), "spec": self._spec()}
            self._write("PATCH", widgets.path(f"o{number}", namespace) + "?fieldManager=m&force=true", body, APPLY)
        elif dice < 0.28:
            self._replace(widgets.path(f"o{number}", namespace))
        elif dice < 0.31:
            self._create_or_delete()
        elif dice < 0.75:
            fresh = "" if choose.random() < 0.5 else "?resourceVersion=0"
            self._read(widgets.path(f"o{number}", namespace) + fresh)
        elif dice < 0.95:
            self._read(f"{widgets.path('', namespace)}?limit=20")
        else:
            self._read(f"{widgets.path('', None)}?resourceVersion=0")

    def _spec(self) -> dict[str, Any]:
        chance = self._chance
        return {"size": chance.randrange(10**9), "sent": int(time.time() * 1000), "note": chance.choice("abc") * 100}

    def _replace(self, path: str) -> None:
        found = self._read(path)
        found["spec"] = self._spec()
        self._write("PUT", path, found, JSON, conflicts=True)

    def _create_or_delete(self) -> None:
        widgets, path = self._load.widgets, self._load.widgets.path("", self._own)
        if len(self._made) < OWN or self._chance.random() < 0.5:
            self._made.append(next(self._names))
            self._write("POST", path, {**widgets.make(self._made[-1]), "spec": self._spec()}, JSON)
        else:
            self._write("DELETE", f"{path}/{self._made.pop(0)}", None, JSON)

    def _read(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._send("GET", path, None, JSON, self._load.reads))
        return found

    def _write(self, method: str, path: str, body: Any, kind: str, *, conflicts: bool = False) -> None:
        data = None if body is None else json.dumps(body)
        self._send(method, path, data, kind, self._load.writes, conflicts=conflicts)

    def _send(
        self, method: str, path: str, data: str | None, kind: str, took: Took, *, conflicts: bool = False
    ) -> bytes:
        began = time.monotonic()
        self.line.request(method, path, data, {"Content-Type": kind} if data else {})
        answer = self.line.getresponse()
        text = answer.read()
        took.add(time.monotonic() - began)
        if answer.status >= 300 and not (conflicts and answer.status == 409):
            self._load.wrong.append(f"{method} {path}: {answer.status} {text[:200]!r}")
        return text
