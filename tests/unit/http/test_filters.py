"""The filters, tested over sockets: authentication, and limits of concurrent requests."""

import asyncio
from typing import Any

import pytest

from apiext.auth.authentication import Credentials
from apiext.auth.authorization import Attributes, Decision
from apiext.auth.user import authenticated
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

ONE = f"{COLLECTION}/a?resourceVersion=0"
NEW = b'{"metadata": {"name": "b"}}'


@pytest.mark.rows("AUT-001")
@on_uvloop
async def test_anonymous_requests_are_served_when_enabled() -> None:
    shelf = Shelf()
    shelf.put("a")
    known = Credentials({"secret": authenticated("alice")})
    served = serving(shelf, authenticator=known, anonymous=True)
    async with served as server, connected(server) as client:
        for token, code in (("", 200), ("wrong", 401), ("secret", 200), ("", 200)):
            sent = {"Authorization": f"Bearer {token}"} if token else {}
            assert (await client.ask("GET", ONE, **sent)).code == code
            assert (await client.ask("GET", COLLECTION, **sent)).code == code
    names = [call.user.name for call in shelf.calls]
    assert names == [name for name in ("system:anonymous", "alice", "system:anonymous") for _ in range(2)]


@pytest.mark.rows("LIM-001", "ERR-21")
@pytest.mark.parametrize(
    ("limit", "held", "other"),
    [
        ("max_inflight", ("GET", f"{COLLECTION}/a"), "POST"),
        ("max_mutating", ("POST", COLLECTION, NEW), "GET"),
        ("max_mutating", ("DELETE", f"{COLLECTION}/a"), "GET"),
    ],
    ids=["reads", "creates", "deletes"],
)
@on_uvloop
async def test_requests_over_the_inflight_limit_get_429(limit: str, held: tuple[Any, ...], other: str) -> None:
    shelf = Shelf(gate=asyncio.Event())
    shelf.put("a")
    async with serving(shelf, **{limit: 1}) as server, connected(server) as first, connected(server) as second:
        first.send(*held)
        await until(lambda: bool(shelf.calls))
        refused = await second.ask(*held)
        assert (refused.code, refused.headers["Retry-After"]) == (429, "1")
        assert refused.json["details"]["retryAfterSeconds"] == 1
        assert refused.json["message"] == "Too many requests, please try again later."
        assert (await second.ask(other, "/apis/none/v1/x")).code == 404  # reads and writes have separate limits
        for probe in ("/livez", "/readyz/ping", "/healthz?verbose"):  # a busy server is healthy
            assert (await second.ask("GET", probe)).code == 200
        assert shelf.gate is not None
        shelf.gate.set()
        assert (await first.receive()).code < 300
        assert (await second.ask(*held)).code < 300


@pytest.mark.rows("LIM-001")
@on_uvloop
async def test_watches_do_not_count_toward_the_inflight_limit() -> None:
    shelf = Shelf(gate=asyncio.Event())
    shelf.put("a")
    assert shelf.gate is not None
    async with (
        serving(shelf, max_inflight=1) as server,
        connected(server) as opening,
        connected(server) as reader,
        connected(server) as other,
    ):
        opening.send("GET", f"{COLLECTION}?watch=true")
        await until(lambda: len(shelf.calls) == 1)
        reader.send("GET", f"{COLLECTION}/a")
        await until(lambda: len(shelf.calls) == 2)  # a watch that is being opened is not counted
        other.send("GET", f"{COLLECTION}?watch=true")
        await until(lambda: len(shelf.calls) == 3)  # nor does a watch wait for other requests
        shelf.gate.set()
        assert (await reader.receive()).code == 200
        for watching in (opening, other):
            assert (await watching.head())[0] == 200
        assert len(shelf.watches) == 2
        assert (await reader.ask("GET", f"{COLLECTION}/a")).code == 200


@pytest.mark.rows("AUT-006", "LIM-001")
@on_uvloop
async def test_authentication_precedes_limits_and_authorization_follows_them() -> None:
    def authorize(wanted: Attributes) -> Decision:
        return Decision(wanted.name == "a" and wanted.verb != "impersonate")

    shelf = Shelf(gate=asyncio.Event())
    shelf.put("a")
    assert shelf.gate is not None
    known = Credentials({"secret": authenticated("alice")})
    asks = (
        ({"Authorization": "Bearer wrong"}, "a", 401, 401),
        ({"Authorization": "Bearer secret"}, "a", 429, 200),
        ({"Authorization": "Bearer secret"}, "b", 429, 403),
        ({"Authorization": "Bearer secret", "Impersonate_User": "bob"}, "a", 403, 403),
    )
    served = serving(shelf, authenticator=known, authorizer=authorize, max_inflight=1)
    async with served as server, connected(server) as first, connected(server) as client:
        first.send("GET", f"{COLLECTION}/a", Authorization="Bearer secret")
        await until(lambda: bool(shelf.calls))
        for headers, name, busy, _ in asks:
            assert (await client.ask("GET", f"{COLLECTION}/{name}", **headers)).code == busy
        shelf.gate.set()
        assert (await first.receive()).code == 200
        for headers, name, _, idle in asks:
            assert (await client.ask("GET", f"{COLLECTION}/{name}", **headers)).code == idle
