"""Each response has the form that its request accepts.

Earlier requests on the connection do not matter.
"""

from itertools import permutations

import orjson
import pytest

from tests.unit.http.support import COLLECTION, Client, Shelf, connected, on_uvloop, serving

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
async def test_response_form_is_independent_of_earlier_requests() -> None:
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
