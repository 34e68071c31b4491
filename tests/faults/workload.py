"""The load: writers that compare and swap, create and delete, and watchers.

Watchers resume after a disconnect.
"""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from apiext.conformance.support.waiting import pause
from tests.faults.history import Delivered, History, Read, Watched, Write

COUNTERS = 3
BROKEN = (OSError, http.client.HTTPException)
LATER = 429  # status of a server whose cache is not filled yet; the request had no effect
LAST = "the-last"
LAST_WITHIN = 15.0  # seconds


class Line:
    """A persistent connection that is opened again after each disconnect."""

    def __init__(self, url: str, over: threading.Event) -> None:
        address = urlsplit(url)
        self._address = (address.hostname or "", address.port or 80)
        self._over = over
        self._connection: http.client.HTTPConnection | None = None

    def connect(self) -> http.client.HTTPConnection:
        """Return an open connection; retry while it is refused.

        Raise OSError if this fails at the end of the run.
        """
        while self._connection is None:
            connection = http.client.HTTPConnection(*self._address, timeout=20)
            try:
                connection.connect()
                self._connection = connection
            except OSError:
                if self._over.is_set():
                    raise
                pause(0.02)
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]] | None:
        """Send a request; return (status, decoded body).

        Return None if the connection broke after the request may have been sent.
        """
        connection = self.connect()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (*BROKEN, ValueError):
            self.close()
            return None


class Load:
    """The load of a run on one resource."""

    def __init__(self, url: str, collection: str, api_version: str, kind: str, seed: int) -> None:
        self.url, self.collection = url, collection
        self.head = {"apiVersion": api_version, "kind": kind}
        self.history = History()
        self.over = threading.Event()
        self.seed = seed
        self._threads: list[threading.Thread] = []

    # ------------------------------------------------------------------ running

    def start(self, writers: int, watchers: int) -> None:
        """Create the counters, then start writers and watchers."""
        line = Line(self.url, self.over)
        since = 0
        for number in range(COUNTERS):
            since = self._create(line, f"counter-{number}", count=0, previous="0") or since
        line.close()
        for _ in range(watchers):
            watched = Watched(since)
            self.history.watched.append(watched)
            self._run(self._watch, watched)
        for number in range(writers):
            self._run(self._write, number)

    def _run(self, target: Any, *arguments: Any) -> None:
        def guarded() -> None:
            try:
                target(*arguments)
            except Exception as failure:
                if not self.over.is_set():
                    self.history.wrong.append(f"{target.__name__} died of {failure!r}")

        thread = threading.Thread(target=guarded, daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        """Stop the writers, write a last object that stops the watchers, and wait for all threads."""
        self.over.set()
        writers = self._threads[len(self.history.watched) :]
        for thread in writers:
            thread.join(30)
        line = Line(self.url, self.over)
        body = {**self.head, "metadata": {"name": LAST}, "spec": {"token": LAST}}
        answer = line.send("POST", self.collection, body)
        if self._acknowledged(answer, LAST, LAST, 201) is None:
            self.history.wrong.append(f"the last write was not acknowledged, though nobody killed: {answer}")
        line.close()
        end = time.monotonic() + LAST_WITHIN
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self.history.wrong.append(f"a watcher was not sent the last event within {LAST_WITHIN:g} s")

    # ------------------------------------------------------------------ writers

    def _write(self, number: int) -> None:
        line, choose = Line(self.url, self.over), random.Random(f"{self.seed}/{number}")
        names = (f"w{number}-{count}" for count in itertools.count())
        made: list[str] = []
        while not self.over.is_set():
            dice = choose.random()
            if dice < 0.70:
                self._increment(line, f"counter-{choose.randrange(COUNTERS)}", number)
            elif dice < 0.85:
                name = next(names)
                if self._create(line, name, count=0, previous="0"):
                    made.append(name)
            elif dice < 0.95 and made:
                self._delete(line, made.pop(choose.randrange(len(made))))
            else:
                self._list(line)
        line.close()

    def _create(self, line: Line, name: str, **spec: Any) -> int | None:
        body = {**self.head, "metadata": {"name": name}, "spec": {"token": f"create {name}", **spec}}
        answer = line.send("POST", self.collection, body)
        return self._acknowledged(answer, name, f"create {name}", 201)

    def _acknowledged(
        self, answer: tuple[int, dict[str, Any]] | None, name: str, token: str, wanted: int
    ) -> int | None:
        if answer is None or answer[0] >= 500:
            self.history.unsure()
            return None
        status, document = answer
        if status == wanted:
            revision = int(document["metadata"]["resourceVersion"])
            self.history.acknowledge(Write(name, revision, token))
            return revision
        if status not in (409, LATER):
            self.history.wrong.append(f"writing {name}: {status} {document.get('message')}")
        return None

    def _increment(self, line: Line, name: str, number: int) -> None:
        floor = self.history.floor(name)
        answer = line.send("GET", f"{self.collection}/{name}")
        if answer is None or answer[0] >= 500 or answer[0] == LATER:
            return
        status, document = answer
        if status != 200:
            self.history.wrong.append(f"reading {name}: {status} {document.get('message')}")
            return
        read = document["metadata"]["resourceVersion"]
        self.history.reads.append(Read(name, floor, int(read)))
        count = document["spec"]["count"] + 1
        token = f"{number}: {count} after {read}"
        document["spec"] = {"count": count, "previous": read, "token": token}
        self._acknowledged(line.send("PUT", f"{self.collection}/{name}", document), name, token, 200)

    def _delete(self, line: Line, name: str) -> None:
        answer = line.send("DELETE", f"{self.collection}/{name}")
        if answer is None or answer[0] >= 500:
            self.history.unsure()
        elif answer[0] not in (200, LATER):
            self.history.wrong.append(f"deleting {name}: {answer[0]} {answer[1].get('message')}")
        elif answer[0] == 200:
            self.history.deleted.append(name)

    def _list(self, line: Line) -> None:
        floor = self.history.floor()
        answer = line.send("GET", self.collection)
        if answer is None or answer[0] >= 500 or answer[0] == LATER:
            return
        self.history.reads.append(Read("list", floor, int(answer[1]["metadata"]["resourceVersion"])))

    # ------------------------------------------------------------------ watchers

    def _watch(self, watched: Watched) -> None:
        line, since, opened = Line(self.url, self.over), watched.since, False
        while True:
            for event in self._stream(line, since):
                if event is None:
                    watched.resumed += opened
                    opened = True
                    continue
                watched.events.append(event)
                since = event.revision
                if event.name == LAST:
                    line.close()
                    return
            line.close()
            pause(0.02)

    def _stream(self, line: Line, since: int) -> Iterator[Delivered | None]:
        """Yield None when the watch is open, then its events until it is disconnected."""
        connection = line.connect()
        try:
            connection.request("GET", f"{self.collection}?watch=true&resourceVersion={since}")
            response = connection.getresponse()
            if response.status != 200:
                if response.status < 500 and response.status != LATER:
                    self.history.wrong.append(f"watching from {since}: {response.status} {response.read()[:200]!r}")
                return
            yield None
            while (raw := response.readline()).endswith(b"\n"):
                event = json.loads(raw)
                if event["type"] == "ERROR":
                    self.history.wrong.append(f"watching from {since}: {event['object']}")
                    return
                metadata = event["object"]["metadata"]
                yield Delivered(event["type"], metadata["name"], int(metadata["resourceVersion"]))
        except BROKEN:
            return
