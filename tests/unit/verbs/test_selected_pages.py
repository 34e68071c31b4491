"""Pages of a list with a selector at one revision.

They are from the cache if it is current, otherwise from etcd in growing chunks.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import orjson
import pytest

from apiext.meta.options import ListOptions
from apiext.meta.status import StatusError
from apiext.storage import continuation, limits
from apiext.storage.state import CachedState
from apiext.verbs import read
from tests.support.fake_etcd import FakeEtcd
from tests.unit.verbs.harness import WIDGETS, Client, widget
from tests.unit.verbs.test_write_loop import served

OBJECTS = 1500


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Yield a client of a server with many widgets, of which every hundredth is marked."""
    async with served(FakeEtcd()) as one:
        for number in range(OBJECTS):
            write(one, number)
        await one.server.store.fresh()
        yield one


def write(client: Client, number: int, **labels: str) -> int:
    """Write a widget directly to etcd; return the revision."""
    name = f"w{number:04}"
    metadata = {"namespace": "default", "uid": name, "labels": {"marked": str(number % 100 == 0), **labels}}
    key = client.server.store.keys.object(WIDGETS, "default", name)
    return etcd_of(client).put(key, orjson.dumps(widget(name, metadata=metadata)))


def etcd_of(client: Client) -> FakeEtcd:
    etcd = client.server.store.etcd
    assert isinstance(etcd, FakeEtcd)
    return etcd


async def page(
    client: Client, token: str, selector: str = "marked=True", **options: str | int
) -> tuple[list[str], str]:
    """Return the names on a page and the continue token."""
    asked = ListOptions(label_selector=selector, continue_token=token, **options)  # type: ignore[arg-type]
    found = await read.list_page(client.verbs, client.call("list"), asked)
    return [entry.name for entry in found.entries or ()], found.token


async def read_all_pages(client: Client, first: str, token: str, limit: int) -> list[str]:
    names = []
    while token:
        given, token = await page(client, token, limit=limit)
        assert len(given) == limit or not token
        names += given
    return [first, *names]


@pytest.mark.rows("RV-005", "SEL-002")
@pytest.mark.parametrize("limit", [1, 4, 15])
async def test_pages_of_unchanged_state_cost_one_etcd_read_each(client: Client, limit: int) -> None:
    etcd = etcd_of(client)
    token = continuation.encode("w0000\0", etcd.revision)
    etcd.calls.clear()
    names = await read_all_pages(client, "w0000", token, limit)
    assert names == [f"w{number:04}" for number in range(0, OBJECTS, 100)]
    assert etcd.calls == ["get"] * (14 // limit + 1)


@pytest.mark.rows("RV-005", "SEL-002")
@pytest.mark.parametrize("limit", [1, 4, 15])
async def test_etcd_chunks_grow_if_state_has_changed(client: Client, limit: int) -> None:
    etcd = etcd_of(client)
    token = continuation.encode("w0000\0", etcd.revision)
    for number in range(50, OBJECTS, 100):
        write(client, number, marked="True")
    await client.server.store.fresh()
    etcd.calls.clear()
    assert await read_all_pages(client, "w0000", token, limit) == [f"w{number:04}" for number in range(0, OBJECTS, 100)]
    assert len(etcd.calls) <= 15 * 8  # at most 1, 2, 4, … 128 for each match
    etcd.calls.clear()
    assert await page(client, token, "marked=nowhere", limit=limit) == ([], "")
    assert len(etcd.calls) <= 12


@pytest.mark.rows("RV-005")
async def test_page_has_continue_token_if_any_object_follows(client: Client) -> None:
    revision = etcd_of(client).revision
    token = continuation.encode("w1399\0", revision)
    for changed in (False, True):
        if changed:
            write(client, 3)
            await client.server.store.fresh()
        (name,), following = await page(client, token, limit=1)
        assert (name, continuation.decode(following)) == ("w1400", ("w1400\0", revision))
        assert await page(client, following, limit=1) == ([], "")
        last = continuation.encode("w1498\0", revision)
        assert await page(client, last, "marked=False", limit=1) == (["w1499"], "")


async def test_etcd_chunks_of_large_objects_stay_small(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PART_BYTES", 2_000)
    etcd, token = etcd_of(client), continuation.encode("w0000\0", etcd_of(client).revision)
    write(client, 3)
    await client.server.store.fresh()
    sizes = []
    whole = etcd.range

    async def ranged(*args: object, limit: int = 0, **kwargs: object) -> object:
        sizes.append(limit)
        return await whole(*args, limit=limit, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(etcd, "range", ranged)
    assert (await page(client, token, limit=1))[0] == ["w0100"]
    assert 4 <= max(sizes) < 20


@pytest.mark.rows("RV-007")
async def test_page_of_compacted_revision_is_expired(client: Client) -> None:
    etcd = etcd_of(client)
    token = continuation.encode("w0000\0", etcd.revision)
    etcd.forget_before(etcd.put("/elsewhere", b"x"))
    await client.server.store.fresh()
    with pytest.raises(StatusError) as expired:
        await page(client, token, limit=1)
    assert (expired.value.code, expired.value.reason) == (410, "Expired")


@pytest.mark.rows("RV-005", "RV-017")
async def test_page_omits_writes_made_during_selection(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(7).sample(range(1, 100), 3)
    token = continuation.encode("w0000\0", etcd_of(client).revision)
    select = CachedState.select

    async def later(self: CachedState, *args: object) -> object:
        for number in numbers:
            write(client, number, marked="True")
        await client.server.store.fresh()
        return await select(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(CachedState, "select", later)
    assert (await page(client, token, limit=2))[0] == ["w0100", "w0200"]


@pytest.mark.rows("RV-003", "RV-020")
async def test_exact_list_shows_object_that_became_unreadable(client: Client) -> None:
    before = await client.server.store.fresh()
    asked = {"resource_version": str(before), "resource_version_match": "Exact"}
    shown, _ = await page(client, "", **asked)
    key = client.server.store.keys.object(WIDGETS, "default", "w0100")
    etcd_of(client).put(key, b"not to be read")
    await client.server.store.fresh()
    assert "w0100" in shown
    assert (await page(client, "", **asked))[0] == shown
    etcd_of(client).remove(key)
    later = await client.server.store.fresh()
    assert (await page(client, "", **asked))[0] == shown
    assert "w0100" not in (await page(client, "", **{**asked, "resource_version": str(later)}))[0]


@pytest.mark.rows("RV-003", "RV-020")
async def test_exact_list_fails_for_unreadable_object_after_deletion(client: Client) -> None:
    key = client.server.store.keys.object(WIDGETS, "default", "never")
    etcd_of(client).put(key, b"not to be read")
    asked = {"resource_version": str(await client.server.store.fresh()), "resource_version_match": "Exact"}
    for _ in range(2):
        with pytest.raises(StatusError, match="failed to read one or more"):
            await page(client, "", **asked)
        etcd_of(client).remove(key)
        await client.server.store.fresh()
