"""What a request without parameters wants to see is remembered by its Accept and User-Agent."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from apiext import limits
from apiext.http import negotiation, resources
from apiext.http.resources import Target
from apiext.http.responses import SecondClock
from tests.unit.http.support import COLLECTION, Client, Shelf, connected, on_uvloop, resource, serving, version

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
ONE = f"{COLLECTION}/a"
WIDGET = orjson.dumps({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "d"}})
WAYS: list[tuple[str, dict[str, str]]] = [
    (ONE, {}),
    (ONE, {"Accept": TABLE}),
    (ONE, {"Accept": PARTIAL}),
    (ONE, {"Accept": "application/yaml"}),
    (ONE, {"Accept": "text/none"}),
    (ONE, {"User-Agent": "curl/8"}),
    (ONE, {"User-Agent": "curl/8", "Accept": TABLE}),
    (f"{ONE}?pretty=1", {}),
    (f"{ONE}?pretty=0", {"User-Agent": "curl/8"}),
    (f"{ONE}?includeObject=Object", {"Accept": TABLE}),
    (f"{ONE}?includeObject=None", {"Accept": TABLE}),
]


async def _answer(client: Client, path: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
    found = await client.ask("GET", path, **headers)
    return found.code, found.headers["Content-Type"], found.body


@pytest.mark.rows("NEG-001", "NEG-005", "TAB-004")
@on_uvloop
async def test_each_is_answered_as_if_it_was_the_first() -> None:
    alone = []
    for path, headers in WAYS:
        async with serving(Shelf()) as server, connected(server) as client:
            await client.ask("POST", COLLECTION, WIDGET)
            alone.append(await _answer(client, path, headers))
    assert len({answer[:2] for answer in alone}) >= 3
    assert len(set(alone)) >= 6
    async with serving(Shelf()) as server, connected(server) as client:
        await client.ask("POST", COLLECTION, WIDGET)
        for first, second in permutations(range(len(WAYS)), 2):
            for at in (first, second, first):
                assert await _answer(client, *WAYS[at]) == alone[at]


class _Sender:
    def __init__(self, accept: str, agent: str) -> None:
        self.accept = accept
        self.agent = agent


class _Exchange:
    def __init__(self, accept: str = "", agent: str = "", query: Any = None) -> None:
        self.sender = _Sender(accept, agent)
        self.query = query or {}

    def value(self, name: str) -> str:
        found: str = self.query.get(name, [""])[0]
        return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the Accept headers that were looked into."""
    looked: list[str] = []
    output = negotiation.output

    def noted(header: str, **named: bool) -> negotiation.Wanted:
        looked.append(header)
        return output(header, **named)

    monkeypatch.setattr(negotiation, "output", noted)
    return looked


SERVER: Any = SimpleNamespace(clock=SecondClock())


def _target() -> Target:
    served = version()
    return Target(resource(served), served, served.endpoints[""])


def _wanted(target: Target, *given: Any) -> Any:
    exchange: Any = _Exchange(*given)
    return resources._subject(SERVER, exchange, target)


def test_the_second_is_known(asked: list[str]) -> None:
    target = _target()
    first = _wanted(target, TABLE, "a")
    assert _wanted(target, TABLE, "a") is first
    assert _wanted(target, TABLE, "b").wanted == first.wanted
    assert _wanted(target, "", "a").wanted != first.wanted
    assert _wanted(target, TABLE, "a", {"includeObject": ["Object"]}).include == "Object"
    assert _wanted(target, TABLE, "a").include == ""
    assert _wanted(_target(), TABLE, "a") is not first
    assert asked == [TABLE, TABLE, "", TABLE, TABLE]


def test_not_more_are_known_than_is_good(asked: list[str]) -> None:
    target = _target()
    for number in range(3 * limits.SUBJECTS_KEPT):
        _wanted(target, "", f"agent{number}")
        assert len(target.subjects) <= limits.SUBJECTS_KEPT
    for _ in range(2):
        _wanted(target, "", "x" * limits.HEADER_KEPT)
        _wanted(target, "", "x" * (limits.HEADER_KEPT + 1))
    assert len(asked) == 3 * limits.SUBJECTS_KEPT + 3
