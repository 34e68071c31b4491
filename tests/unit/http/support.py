"""A small API for tests: one resource in a dict, and a client that reads bytes."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from apiext.auth.authentication import NoAuthentication
from apiext.auth.authorization import always_allow
from apiext.catalog.served import (
    ALL_VERBS,
    Catalog,
    Codec,
    Column,
    Endpoint,
    LiveCatalog,
    Model,
    Names,
    ServedResource,
    ServedVersion,
)
from apiext.config import Listening, RequestConfig
from apiext.documents.document import Document, View
from apiext.http.health import Health
from apiext.http.server import HttpServer, Settings
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.storage.store import Entry
from apiext.telemetry import Telemetry
from apiext.verbs.call import Body, Call, Outcome, Page
from tests.support import polling

GROUP, VERSION, PLURAL = "example.com", "v1", "widgets"
COLLECTION = f"/apis/{GROUP}/{VERSION}/namespaces/d/{PLURAL}"


def splice(raw: bytes, revision: int) -> bytes:
    """Return stored bytes with the revision as resourceVersion."""
    document = orjson.loads(raw)
    document["metadata"]["resourceVersion"] = str(revision)
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


MODEL = Model(
    f"{GROUP}/{VERSION}",
    "Widget",
    lambda document: (document, []),
    columns=(
        Column("Name", "string", "name", "the name", cell=lambda view: view["metadata"].get("name", "")),
        Column("X", "integer", description="x", cell=lambda view: (view.get("spec") or {}).get("x")),
    ),
)
CODEC = Codec(splice, lambda raw, revision: orjson.loads(splice(raw, revision)), orjson.dumps, orjson.dumps)


def endpoint(name: str = "", verbs: tuple[str, ...] = ALL_VERBS, kind: str = "", model: Model = MODEL) -> Endpoint:
    """Return an endpoint of the whole object, or of its metadata as another kind."""

    def project(stored: View) -> View:
        return {"kind": kind, "metadata": stored["metadata"]} if kind else stored

    if kind:
        model = Model("", kind, lambda document: (document, []), typed=True)
    return Endpoint(name, verbs, model, project, lambda _, new: dict(new), lambda new, _: new, partial=bool(kind))


def endpoints(model: Model) -> dict[str, Endpoint]:
    """Return the endpoints of an object and its status."""
    return {"": endpoint(model=model), "status": endpoint("status", ("get", "update", "patch"), model=model)}


def version(**changes: Any) -> ServedVersion:
    """Return a served version of widgets."""
    names = Names(GROUP, VERSION, PLURAL, "Widget", "WidgetList", namespaced=True)
    return replace(ServedVersion(names, MODEL, CODEC, endpoints(MODEL)), **changes)


def resource(served: ServedVersion, **changes: Any) -> ServedResource:
    """Return a resource with one version."""
    names = served.names
    plain = ServedResource(names.group, names.resource, names.namespaced, {names.version: served}, names.version)
    return replace(plain, **changes)


NAMESPACE = replace(MODEL, api_version="v1", kind="Namespace", typed=True)
NAMESPACES = version(
    names=Names("", VERSION, "namespaces", "Namespace", "NamespaceList", namespaced=False),
    model=NAMESPACE,
    endpoints=endpoints(NAMESPACE),
)


def catalog() -> Catalog:
    """Return a catalog with widgets and namespaces."""
    return Catalog().with_resource(resource(version())).with_resource(resource(NAMESPACES, builtin=True))


@dataclass
class Shelf:
    """Operations on a dict; the revision counts writes."""

    catalog: LiveCatalog = field(default_factory=lambda: LiveCatalog(catalog()))
    entries: dict[tuple[str, str, str], Entry] = field(default_factory=dict)
    watches: list["ShelfWatch"] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    revision: int = 10
    has_peers: bool = False
    gate: asyncio.Event | None = None
    fails: BaseException | None = None
    opening: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, name: str, namespace: str = "d", plural: str = PLURAL, **spec: Any) -> Entry:
        """Store an object and send its event to the watches."""
        self.revision += 1
        kind, api = ("Namespace", "v1") if plural == "namespaces" else ("Widget", f"{GROUP}/{VERSION}")
        metadata = {"name": name, "uid": f"uid-{name}"} | ({"namespace": namespace} if namespace else {})
        raw = orjson.dumps({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
        known = (plural, namespace, name) in self.entries
        entry = self.entries[plural, namespace, name] = Entry(namespace, name, self.revision, raw)
        self.publish("MODIFIED" if known else "ADDED", entry)
        return entry

    def publish(self, event: str, entry: Entry) -> None:
        """Send one event to every watch."""
        for watch in list(self.watches):
            watch.send(event, entry)

    async def settle(self) -> None:
        """Return at once, as all stored definitions are served."""

    async def catch_up(self) -> None:
        """Return at once, as there is no other server."""

    def cached(self, resource: GroupResource, namespace: str, name: str) -> Entry | None:
        """Return the entry of an object."""
        return self.entries.get((resource.resource, namespace, name))

    def counts(self) -> Iterable[tuple[GroupResource, int]]:
        """Return the number of objects."""
        return [(GroupResource(GROUP, PLURAL), len(self.entries))]

    async def _turn(self, call: Call) -> None:
        self.calls.append(call)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails

    async def get(self, call: Call) -> Entry:
        """Return one object."""
        await self._turn(call)
        found = self.entries.get((call.served.names.resource, call.namespace or "", call.name))
        if found is None:
            raise status.not_found(call.served.names.group_resource, call.name)
        return found

    async def list(self, call: Call) -> Page:
        """Return all objects of a collection, as entries."""
        await self._turn(call)
        found = [
            entry
            for (plural, namespace, _), entry in sorted(self.entries.items())
            if plural == call.served.names.resource and call.namespace in {None, namespace}
        ]
        limit = int(call.query.get("limit", ["0"])[0])
        if 0 < limit < len(found):
            return Page(self.revision, entries=found[:limit], token="next", remaining=len(found) - limit)
        return Page(self.revision, entries=found)

    async def watch(self, call: Call, frames: Any, sink: Any) -> "ShelfWatch":
        """Send an event for each later put."""
        await self._turn(call)
        watch = ShelfWatch(self, frames, sink)
        self.watches.append(watch)
        self.opening.set()
        return watch

    async def create(self, call: Call, body: Body) -> Outcome:
        """Store the body's object."""
        await self._turn(call)
        self.bodies.append(body)
        name = body.document["metadata"]["name"]
        return Outcome(201, entry=self.put(name, call.namespace or "", call.served.names.resource))

    async def update(self, call: Call, body: Body) -> Outcome:
        """Echo the body."""
        await self._turn(call)
        self.bodies.append(body)
        return Outcome(200, document=body.document)

    async def patch(self, call: Call, media_type: str, raw: bytes) -> Outcome:
        """Record the patch and return the object."""
        await self._turn(call)
        self.bodies.append((media_type, raw))
        return Outcome(200, entry=await self.get(call))

    async def delete(self, call: Call, options: Document | None) -> Outcome:
        """Return a Status."""
        await self._turn(call)
        self.bodies.append(options)
        return Outcome(200, document=status.success({"name": call.name, "kind": call.served.names.resource}))

    async def begin_collection_delete(self, call: Call, options: Document | None) -> tuple[Page, DeleteOptions]:
        """Return an empty list."""
        await self._turn(call)
        self.bodies.append(options)
        return Page(1, entries=[]), DeleteOptions()

    async def delete_listed(self, call: Call, names: Sequence[tuple[str, str]], options: DeleteOptions) -> None:
        """Delete nothing, as nothing was listed."""
        assert not names


@dataclass
class ShelfWatch:
    """A watcher of the shelf."""

    shelf: Shelf
    frames: Any
    sink: Any
    missed: list[bytes] = field(default_factory=list)

    def send(self, event: str, entry: Entry) -> None:
        """Write an event, or keep it for later while the sink is paused."""
        data = self.frames.frame(event, entry)
        if self.sink.paused:
            self.missed.append(data)
        else:
            self.sink.write(data)

    def resume(self) -> None:
        """Write the missed events."""
        missed, self.missed = self.missed, []
        if missed:
            self.sink.write(b"".join(missed))

    def bookmark_now(self) -> None:
        """Write a bookmark."""
        self.sink.write(self.frames.bookmark(self.shelf.revision, False))

    def close(self) -> None:
        """Remove the watch."""
        if self in self.shelf.watches:
            self.shelf.watches.remove(self)


def _taken(options: dict[str, Any], group: type[Struct]) -> dict[str, Any]:
    return {name: options.pop(name) for name in group.__struct_fields__ if name in options}


@asynccontextmanager
async def serving(shelf: Shelf, *, health: Health | None = None, **options: Any) -> AsyncIterator[HttpServer]:
    """Serve a shelf on a free port.

    Options: ``authenticator``, ``authorizer``, fields of Settings and its groups.
    """
    authenticator = options.pop("authenticator", NoAuthentication())
    authorizer = options.pop("authorizer", always_allow)
    telemetry = options.pop("telemetry", None) or Telemetry()
    auditor = options.pop("auditor", None)
    options["listening"] = Listening(**{"port": 0} | _taken(options, Listening))
    options["requests"] = RequestConfig(**_taken(options, RequestConfig))
    server = HttpServer(shelf, authenticator, authorizer, health or Health(), Settings(**options), telemetry, auditor)
    await server.start()
    try:
        yield server
    finally:
        await server.wait_closed(drain=0.2)


@dataclass
class Answer:
    """A response."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


class Client:
    """A minimal HTTP/1.1 client with one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Send a request; names of headers have underscores in place of dashes."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join((*lines, "", "")).encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read status line and headers."""
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        pairs = [line.split(": ", 1) for line in lines]
        headers: dict[str, str] = {}
        for name, value in pairs:
            headers[name] = f"{headers[name]}|{value}" if name in headers else value
        return int(first.split()[1]), headers

    async def receive(self, method: str = "GET") -> Answer:
        """Read one response."""
        code, headers = await self.head()
        if headers.get("Transfer-Encoding") == "chunked":
            return Answer(code, headers, b"".join([piece async for piece in self.chunks()]))
        length = 0 if method == "HEAD" or code == 304 else int(headers["Content-Length"])
        return Answer(code, headers, await asyncio.wait_for(self.reader.readexactly(length), 20))

    async def chunk(self) -> bytes:
        """Read one chunk; the last is empty."""
        size = int(await asyncio.wait_for(self.reader.readline(), 20), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read chunks to the end."""
        while piece := await self.chunk():
            yield piece

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request and read the response."""
        self.send(method, path, body, **headers)
        return await self.receive(method)


@asynccontextmanager
async def connected(server: HttpServer, tls: Any = None, host: str = "127.0.0.1") -> AsyncIterator[Client]:
    """Connect to a server."""
    reader, writer = await asyncio.open_connection(host, server.port, ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


until = partial(polling.until, every=0)
"""Wait for a condition; poll it in each iteration of the event loop."""


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test with uvloop, like the server."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(**arguments))  # type: ignore[arg-type]

    return run
