"""Each request releases its slots and memory, whatever its outcome."""

import asyncio
import random
from contextlib import suppress

import pytest

from apiext.http.resources import Resources
from apiext.http.server import HttpServer
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until
from tests.unit.http.test_pieces import created


def request(choice: random.Random) -> bytes:
    """Return a random request: a read, a watch, or a create."""
    body, fields, method, target = b"", "", choice.choice(["GET", "HEAD", "POST", "POST"]), COLLECTION
    if method == "POST":
        body = created("a", choice.choice([0, 5_000, 150_000, 400_000]))
        fields = f"Content-Length: {len(body)}\r\n" + choice.choice(["", "Expect: 100-continue\r\n"])
    else:
        target += choice.choice(["", "/big", "?watch=1", "?watch=1&timeoutSeconds=1"])
        fields = choice.choice(["", "Accept-Encoding: gzip\r\n", "Accept: text/event-stream\r\n"])
        fields += choice.choice(["", "Accept: application/yaml\r\n"]) if not fields else ""
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode() + body


async def send_and_disconnect(server: HttpServer, choice: random.Random) -> None:
    """Send some requests, read some of the responses, and close or abort the connection.

    The last request may be sent in part.
    """
    with suppress(ConnectionError, RuntimeError):  # uvloop raises RuntimeError on a closed transport
        async with connected(server) as client:
            sent = b"".join(request(choice) for _ in range(choice.randint(1, 4)))
            sent = sent[: choice.choice([len(sent), choice.randint(1, len(sent))])]
            while sent:
                at = choice.choice([len(sent), choice.randint(1, len(sent))])
                client.writer.write(sent[:at])
                sent = sent[at:]
                await asyncio.sleep(choice.choice([0, 0, 0.005]))
            with suppress(TimeoutError):
                await asyncio.wait_for(client.reader.read(choice.choice([1, 100_000])), choice.choice([0.001, 0.05]))
            if choice.random() < 0.5:
                client.writer.transport.abort()


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0, 2_000_000, 8_000_000])
@on_uvloop
async def test_all_slots_and_memory_are_released_after_requests(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Resources] = []
    before = Resources.__init__

    def keeping(self: Resources, *given: object, **named: object) -> None:
        kept.append(self)
        before(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Resources, "__init__", keeping)
    shelf, choice = Shelf(), random.Random(memory)
    shelf.put("big", x="x" * 1_000_000)
    async with serving(shelf) as server:
        if memory:
            server.service.memory.total, server.service.memory.share = memory, memory // 4 * 3
        for _ in range(15):
            await asyncio.gather(*(send_and_disconnect(server, choice) for _ in range(10)))
        await until(lambda: not server.service.in_flight.count and not server.connections)
        gate = server._gate
        assert (server.service.memory.promised, server.service.memory._users) == (0, {})
        assert not kept[0].watches
        assert not shelf.watches
        assert gate.running == {False: 0, True: 0}
        pending = server.service.unauthenticated
        assert (pending._total, pending._heads, pending._pending) == (0, {}, {})
