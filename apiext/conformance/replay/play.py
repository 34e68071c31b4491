"""Send a recorded scenario to a server.

A run has a label of its own. It captures values for later requests, repeats requests until a condition holds, and keeps
watches open.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import random
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from apiext.conformance.replay.recorded import CANON, USER_AGENT, Scenario

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INITIAL_END = "k8s.io/initial-events-end"
KEPT_HEADERS = ("Content-Type", "Retry-After", "Location", "Allow")
FAILURES = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
QUIET = 0.25  # seconds to wait for unexpected events of an open watch, after it has sent the expected events

_VARIABLE = re.compile(r"\$\{([\w.-]+)(?:\|([^}]*))?\}")
_LONG = re.compile(r"@LONG(\d+)@")
_STEP_OF_PATH = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


@dataclass
class Reply:
    """An unprocessed answer.

    ``events`` are the collected events of a watch, ``stream`` marks an opened watch.
    """

    status: int
    headers: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    events: list[str] | None = None
    bookmarks: bool = False
    closed: bool = False
    stream: bool = False
    timed_out: bool = False


@dataclass
class Stream:
    """An open watch, and the lines that it has received."""

    lines: list[str] = field(default_factory=list)
    closed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    reader: asyncio.Task[None] | None = None


@dataclass
class Played:
    """The requests and answers of one run of a scenario."""

    scenario: Scenario
    label: str
    manager: str = ""
    """The field manager of the server's own writes to the status of definitions."""
    replies: list[Reply | None] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)


def fresh_label() -> str:
    """Return a random label for a run, which replaces CANON, the label in the recorded requests.

    Both labels have the same length.
    """
    return "u" + "".join(random.choices("bcdfghjkmnpqrstvwz23456789", k=len(CANON) - 1))


def at_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path with [index] parts, None if there is no value."""
    for name, index in _STEP_OF_PATH.findall(path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return None
    return value


class Play:
    """One run of one scenario."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, scenario: Scenario, patience: float, manager: str
    ) -> None:
        self.http, self.url, self.patience = http, url.rstrip("/"), patience
        self.played = Played(scenario, fresh_label(), manager)
        self.variables: dict[str, str] = {}
        self.streams: dict[str, Stream] = {}
        self.definitions: list[str] = []

    async def run(self, tasks: asyncio.TaskGroup) -> Played:
        """Send every step in order.

        If a step that compares only the status waits in vain for its condition ``until``, do not send the later steps.
        """
        lost = False
        for step in self.played.scenario.steps:
            reply = None
            if lost:
                reply = Reply(0, text="not sent: an earlier wait was in vain")
            else:
                try:
                    reply = await self._step(step, tasks)
                except FAILURES as failure:
                    reply = Reply(0, text=f"transport error: {type(failure).__name__}")
                lost = reply is not None and reply.timed_out and step.get("compare") == ["status"]
            self.played.replies.append(reply)
        for stream in self.streams.values():
            if stream.reader:
                stream.reader.cancel()
        with contextlib.suppress(*FAILURES, ValueError, KeyError):
            await self._clean_up()
        return self.played

    async def _step(self, step: dict[str, Any], tasks: asyncio.TaskGroup) -> Reply | None:
        if "sleep" in step:
            await asyncio.sleep(step["sleep"])
        if "watch" in step:
            return await self._open(step, tasks)
        if "collect" in step:
            return await self._collect(step)
        if "method" not in step:
            return None
        reply = await self._send_until(step)
        self._remember(step, reply)
        return reply

    async def _send_until(self, step: dict[str, Any]) -> Reply:
        end = time.monotonic() + min(float(step.get("timeout", 30)), self.patience)
        pause = 0.02
        while True:
            reply = await self._send(step)
            if reply.status != 429 and ("until" not in step or _holds(step["until"], reply, self.played.label)):
                return reply
            if time.monotonic() > end:
                reply.timed_out = "until" in step
                return reply
            await asyncio.sleep(pause)
            pause = min(0.3, pause * 1.6)

    def _remember(self, step: dict[str, Any], reply: Reply) -> None:
        document: Any = None
        with contextlib.suppress(ValueError):
            document = json.loads(reply.text)
        for name, path in step.get("capture", {}).items():
            value = at_path(document, path)
            if value is not None:
                self.variables[name] = str(value)
        made = step["method"] == "POST" and reply.status == 201 and "dryRun" not in step["path"]
        if made and step["path"].startswith(DEFINITIONS) and (name := at_path(document, "metadata.name")):
            self.definitions.append(name)

    def _fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._fill(key): self._fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item) for item in value]
        if not isinstance(value, str):
            return value
        value = _VARIABLE.sub(lambda found: self.variables.get(found[1], found[2] or "1"), value)
        return _LONG.sub(lambda found: "a" * int(found[1]), value).replace(CANON, self.played.label)

    def _body(self, step: dict[str, Any]) -> bytes | None:
        if "raw" not in step:
            if "body" not in step:
                return None
            return json.dumps(self._fill(step["body"]), separators=(",", ":"), ensure_ascii=False).encode()
        raw = step["raw"]
        if isinstance(raw, str):
            filled: str = self._fill(raw)
            return filled.encode()
        if "base64" in raw:
            return base64.b64decode(raw["base64"])
        text: str = self._fill(raw["prefix"]) + raw["repeat"] * raw["times"] + self._fill(raw["suffix"])
        return text.encode()

    def _request(self, step: dict[str, Any]) -> Any:
        path, body = self._fill(step["path"]), self._body(step)
        self.played.sent.append(f"{path} {(body or b'')[:200_000].decode('utf-8', 'replace')}")
        headers = {"User-Agent": USER_AGENT, **self._fill(step.get("headers") or {})}
        address = URL(self.url + path, encoded=True)
        data = io.BytesIO(body) if body is not None and len(body) > 2**16 else body
        return self.http.request(step["method"], address, data=data, headers=headers, allow_redirects=False)

    async def _send(self, step: dict[str, Any]) -> Reply:
        async with self._request(step) as response:
            return Reply(response.status, _kept(response.headers), _text(await response.read()))

    async def _open(self, step: dict[str, Any], tasks: asyncio.TaskGroup) -> Reply:
        stream = self.streams[step["watch"]] = Stream()
        opened: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        stream.reader = tasks.create_task(self._read(step, stream, opened))
        async with asyncio.timeout(30):
            reply = await opened
        reply.stream = reply.status == 200
        if reply.stream:
            await asyncio.sleep(0.1)  # so that initial events are sent before the writes of the next steps
        return reply

    async def _read(self, step: dict[str, Any], stream: Stream, opened: asyncio.Future[Reply]) -> None:
        try:
            async with self._request(step) as response:
                reply = Reply(response.status, _kept(response.headers))
                if response.status != 200:
                    reply.text = _text(await response.read())
                opened.set_result(reply)
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    stream.lines += [_text(line) for line in lines if line.strip()]
                    stream.changed.set()
                if rest.strip():
                    stream.lines.append(_text(rest))
        except FAILURES as failure:
            if not opened.done():
                opened.set_result(Reply(0, text=f"transport error: {type(failure).__name__}"))
        finally:
            stream.closed = True
            stream.changed.set()

    async def _collect(self, step: dict[str, Any]) -> Reply:
        stream = self.streams[step["collect"]]
        to_the_end, bookmarks = bool(step.get("closed")), bool(step.get("bookmarks"))
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(float(step.get("timeout", 6))):
                while not stream.closed:
                    wanted = [line for line in stream.lines if counts(line, bookmarks)]
                    if not to_the_end and "events" in step and len(wanted) >= step["events"]:
                        break
                    stream.changed.clear()
                    await stream.changed.wait()
        if not stream.closed and not to_the_end:
            await asyncio.sleep(QUIET)
        reply = Reply(200, events=list(stream.lines), bookmarks=bookmarks, closed=stream.closed)
        if step.get("keep"):
            stream.lines.clear()
        elif stream.reader:
            stream.reader.cancel()
        return reply

    async def _clean_up(self) -> None:
        for name in dict.fromkeys(self.definitions):
            async with self.http.get(f"{self.url}{DEFINITIONS}/{name}") as response:
                if response.status != 200:
                    continue
                spec = (await response.json(content_type=None))["spec"]
            async with self.http.delete(f"{self.url}{DEFINITIONS}/{name}") as response:
                await response.read()
            served = next((version["name"] for version in spec["versions"] if version["served"]), None)
            if served:
                await self._release(f"/apis/{spec['group']}/{served}", spec["names"]["plural"])

    async def _release(self, base: str, plural: str) -> None:
        async with self.http.get(f"{self.url}{base}/{plural}") as response:
            left = (await response.json(content_type=None)).get("items", []) if response.status == 200 else []
        for item in left:
            metadata = item["metadata"]
            if not metadata.get("finalizers"):
                continue
            inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            async with self.http.patch(
                f"{self.url}{base}{inside}/{plural}/{metadata['name']}",
                data=b'{"metadata":{"finalizers":null}}',
                headers={"Content-Type": "application/merge-patch+json"},
            ) as response:
                await response.read()


def counts(line: str, bookmarks: bool) -> bool:
    """Return whether a watch line is compared.

    Of the bookmarks, only the bookmark that ends the initial events is compared, and only if ``bookmarks`` is true.
    """
    return '"type":"BOOKMARK"' not in line[:24] or (bookmarks and INITIAL_END in line)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _kept(headers: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {name: ", ".join(found) for name in KEPT_HEADERS if (found := headers.getall(name, []))}
    if warnings := headers.getall("Warning", []):
        kept["Warning"] = sorted(warnings)
    return kept


def _holds(until: Any, reply: Reply, label: str) -> bool:
    wanted: Mapping[str, Any] = {"cond": "Established=True"} if until == "established" else until
    text = reply.text.replace(label, CANON)
    if reply.status != wanted.get("status", reply.status):
        return False
    if wanted.get("contains", "") not in text or ("lacks" in wanted and wanted["lacks"] in text):
        return False
    if not wanted.keys() & {"cond", "path", "items"}:
        return True
    try:
        document = json.loads(text)
    except ValueError:
        return False
    return all(check(document, wanted) for key, check in _DOCUMENT_CHECKS.items() if key in wanted)


def _has_condition(document: Any, wanted: Mapping[str, Any]) -> bool:
    kind, _, status = wanted["cond"].partition("=")
    return any(
        found.get("type") == kind and found.get("status") == status and wanted.get("reason") in (None, found["reason"])
        for found in at_path(document, "status.conditions") or []
    )


def _has_value(document: Any, wanted: Mapping[str, Any]) -> bool:
    value = at_path(document, wanted["path"])
    if "equals" in wanted:
        return bool(value == wanted["equals"])
    return (value is None) == bool(wanted.get("absent"))


def _has_items(document: Any, wanted: Mapping[str, Any]) -> bool:
    return bool(len(document.get("items") or []) == wanted["items"])


_DOCUMENT_CHECKS = {"cond": _has_condition, "path": _has_value, "items": _has_items}


def session(headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Return a client with only these headers and any number of connections.

    ``tls`` is its context for https.
    """
    return aiohttp.ClientSession(
        # force_close: else the server may close a kept connection just before the client uses it
        connector=aiohttp.TCPConnector(limit=0, ssl=tls or True, force_close=True),
        headers=headers,
        skip_auto_headers=["Accept", "Accept-Encoding", "Content-Type"],
        timeout=aiohttp.ClientTimeout(total=90),
        read_bufsize=2**22,
    )


async def play(
    http: aiohttp.ClientSession, url: str, scenario: Scenario, patience: float = 15.0, manager: str = ""
) -> Played:
    """Play one scenario.

    ``patience`` is the number of seconds after which a request is not repeated. ``manager``: see Played.
    """
    async with asyncio.TaskGroup() as tasks:
        return await Play(http, url, scenario, patience, manager).run(tasks)
