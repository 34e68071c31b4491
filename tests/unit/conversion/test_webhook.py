"""Shared calls, size limits of reviews, and errors of single objects, with a real webhook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from apiext import limits as server_limits
from apiext.catalog import limits as catalog_limits
from apiext.catalog.converted import NeedsConversion
from apiext.catalog.served import ServedResource
from apiext.conformance.support.conversion_webhook import Webhook, answer, failed, fixtures, renamed, slowly, spoiled
from apiext.conversion import limits as conversion_limits
from apiext.conversion import pieces, review
from apiext.conversion.review import CALL, INVALID_OBJECT, ConversionError
from apiext.conversion.webhook import Converter
from apiext.storage.store import Entry, ViewedEntry, with_views
from apiext.webhooks.client import Client
from apiext.webhooks.target import Target
from tests.unit.catalog.samples import CLOSED, HOOK, OPEN, resource, version, widget

running, hook = fixtures(answer(renamed))


@pytest.fixture
async def converter() -> AsyncIterator[Converter]:
    client = Client()
    async with asyncio.TaskGroup() as group:
        converter = Converter(client)
        converter.start(group)
        yield converter
        await converter.stop()
    await client.close()


def served(hook: Webhook, path: str = "/convert", **settings: Any) -> ServedResource:
    webhook = {"clientConfig": hook.client_config(path), "conversionReviewVersions": ["v1"], **settings}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    return resource(version("v1", CLOSED), version("v2", OPEN), conversion=conversion)


def entries(count: int, size: int = 0, start: int = 0) -> list[Entry]:
    found = []
    for number in range(start, start + count):
        document = widget(spec={"free": {"x": "y" * size}})
        document["metadata"] = {**document["metadata"], "name": f"o{number}", "uid": f"u{number}"}
        raw = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        found.append(Entry("default", f"o{number}", 100 + number, raw))
    return found


async def convert_entries(converter: Converter, of: ServedResource, wanted: list[Entry]) -> list[Entry]:
    """Return entries with the JSON of each object in v2."""
    view = of.versions["v2"].codec.view
    return with_views(wanted, view, await converter.made(of, view, wanted))


async def objects_in_v2(converter: Converter, of: ServedResource, wanted: list[Entry]) -> list[dict[str, Any]]:
    """Return the objects in v2."""
    view = of.versions["v2"].codec.view
    found = await convert_entries(converter, of, wanted)
    return [orjson.loads(entry.view(view)) for entry in found]


@pytest.mark.rows("VER-004", "VER-012")
async def test_lists_are_split_into_bounded_reviews(converter: Converter, hook: Webhook) -> None:
    of, wanted = served(hook), entries(950)
    found = await objects_in_v2(converter, of, wanted)
    assert [it["metadata"]["name"] for it in found] == [entry.name for entry in wanted]
    assert {it["apiVersion"] for it in found} == {"example.com/v2"}
    assert [it["metadata"]["resourceVersion"] for it in found[:2]] == ["100", "101"]
    assert found[0]["spec"] == {"color": "red", "free": {"x": ""}}
    assert sorted(len(request["objects"]) for request in hook.requests()) == [50, *[100] * 9]
    await objects_in_v2(converter, of, wanted)
    assert len(hook.requests()) == 10
    for place, entry in zip((0, 450, 949), entries(3, start=1000), strict=True):
        wanted[place] = entry
    found = await objects_in_v2(converter, of, wanted)
    assert [it["metadata"]["name"] for it in found] == [entry.name for entry in wanted]
    assert [len(request["objects"]) for request in hook.requests()[10:]] == [3], "however far they are from each other"
    await objects_in_v2(converter, of, [*wanted[:5], *entries(400, start=5000)])
    assert [len(request["objects"]) for request in hook.requests()[11:]] == [100] * 4, "whatever is known before them"
    hook.forget()
    hook.answer = answer(renamed)
    await objects_in_v2(converter, of, entries(5, size=conversion_limits.REVIEW_BYTES // 2, start=2000))
    assert sorted(len(request["objects"]) for request in hook.requests()) == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(("most", "parts"), [(10**9, [400, 400, 150]), (1, [11, 16, 16, 16])])
async def test_conversions_are_batched_by_count_and_bytes(
    converter: Converter, hook: Webhook, most: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    of, wanted = served(hook), entries(sum(parts))
    await objects_in_v2(converter, of, entries(20, start=7_000))
    asked: list[int] = []
    seen: list[bytes] = []
    convert, view = converter.convert, of.versions["v2"].codec.view

    async def counted(resource: ServedResource, needs: list[NeedsConversion], *, request: bool) -> Any:
        if needs:
            asked.append(len(needs))
        return await convert(resource, needs, request=request)

    def viewed(raw: bytes, revision: int) -> bytes:
        seen.append(raw)
        return view(raw, revision)

    monkeypatch.setattr(converter, "convert", counted)
    monkeypatch.setattr("apiext.conversion.webhook._BYTES_AT_ONCE", most)
    made = await converter.made(of, viewed, [*entries(5, start=7_000), *wanted])
    assert [orjson.loads(one.at(7))["metadata"]["name"] for one in made[5:]] == [entry.name for entry in wanted]
    assert len(seen) == 16, "one that is not known tells how to ask for the others"
    assert asked == parts


def catch_needs_conversion(work: Callable[..., object], *args: object) -> NeedsConversion:
    """Call a function that must raise NeedsConversion; return the exception."""
    with pytest.raises(NeedsConversion) as found:
        work(*args)
    return found.value


@pytest.mark.rows("VER-004")
async def test_review_has_objects_of_one_target_version(converter: Converter, hook: Webhook) -> None:
    of = served(hook)
    first, *others = (catch_needs_conversion(of.versions["v2"].codec.view, entry.raw, 7) for entry in entries(3))
    written = catch_needs_conversion(of.versions["v2"].codec.encode, {**widget(), "apiVersion": "example.com/v2"})
    kept = await converter.convert(of, [first, written, *others])
    assert all(kept)
    asked = [(request["desiredAPIVersion"], len(request["objects"])) for request in hook.requests()]
    assert sorted(asked) == [("example.com/v1", 1), ("example.com/v2", 1), ("example.com/v2", 2)]


@pytest.mark.rows("VER-012")
async def test_views_are_equal_whether_converted_or_cached(converter: Converter, hook: Webhook) -> None:
    of, wanted = served(hook), entries(3)
    stored, view = of.versions["v1"].codec.view, of.versions["v2"].codec.view
    labelled = widget(metadata={"labels": {"a": "b"}}, spec={"color": "blue"})
    wanted.append(Entry("default", "labelled", 7, orjson.dumps(labelled, option=orjson.OPT_SORT_KEYS)))
    own = Entry("default", "own", 8, orjson.dumps({**widget(), "apiVersion": "example.com/v2"}))
    made = await convert_entries(converter, of, [*wanted, own])
    known = await convert_entries(converter, of, [*wanted, own])
    (_, *mixed) = await convert_entries(converter, of, [*entries(1, 0, 50), *wanted, own])
    assert [len(request["objects"]) for request in hook.requests()] == [4, 1]
    for one, two, three, entry in zip(made, known, mixed, [*wanted, own], strict=True):
        expected = orjson.loads(view(entry.raw, entry.revision))
        for found in (one, two, three):
            assert found.view(view) == found.uncached_view(view) == view(entry.raw, entry.revision)
            assert entry is own or found.view(stored) == stored(entry.raw, entry.revision)
            assert found.decoded(of.versions["v2"].codec.decode) == expected
            assert found.labels == expected["metadata"].get("labels", {})
            later = found.with_revision(1_000)
            assert (later.revision, later.view(view)) == (1_000, view(entry.raw, 1_000))


@pytest.mark.rows("VER-012")
async def test_concurrent_readers_share_webhook_call(converter: Converter, hook: Webhook) -> None:
    of, wanted = served(hook), entries(3)
    hook.answer = slowly(0.2, answer(renamed))
    first, second, third = await asyncio.gather(
        objects_in_v2(converter, of, wanted),
        objects_in_v2(converter, of, wanted[1:]),
        objects_in_v2(converter, of, [*wanted, *entries(1, 0, 9)]),
    )
    assert (len(first), len(second), len(third)) == (3, 2, 4)
    assert sorted(len(request["objects"]) for request in hook.requests()) == [1, 3]


async def test_a_cancelled_request_does_not_cancel_a_shared_call(converter: Converter, hook: Webhook) -> None:
    of, wanted = served(hook), entries(1)
    hook.answer = slowly(0.3, answer(renamed))
    leaving = asyncio.timeout(0.05)
    with pytest.raises(TimeoutError):
        async with leaving:
            await objects_in_v2(converter, of, wanted)
    assert len(await objects_in_v2(converter, of, wanted)) == 1
    assert len(hook.requests()) == 1


@pytest.mark.rows("VER-006", "VER-008")
async def test_invalid_object_does_not_fail_others(converter: Converter, hook: Webhook) -> None:
    of, wanted = served(hook), entries(3)

    def spoil(objects: list[dict[str, Any]]) -> None:
        objects[1]["kind"] = "Gadget"

    hook.answer = spoiled(spoil, renamed)
    with pytest.raises(
        ConversionError, match=r"at index 1: invalid kind \(expected Widget, received Gadget\)"
    ) as error:
        await objects_in_v2(converter, of, wanted)
    assert error.value.failure == INVALID_OBJECT
    assert len(await objects_in_v2(converter, of, [wanted[0], wanted[2]])) == 2
    assert len(hook.requests()) == 1
    hook.answer = answer(renamed)
    assert len(await objects_in_v2(converter, of, wanted)) == 3
    assert len(hook.requests()) == 2


@pytest.mark.rows("VER-006")
async def test_reordered_objects_are_an_error(converter: Converter, hook: Webhook) -> None:
    hook.answer = spoiled(lambda objects: objects[::-1], renamed)
    with pytest.raises(ConversionError, match=r"at index 0: must have the same name: o0 != o2"):
        await objects_in_v2(converter, served(hook), entries(3))


@pytest.mark.rows("VER-008")
async def test_conversion_failures_are_not_cached(converter: Converter, hook: Webhook) -> None:
    of, wanted = served(hook), entries(1)
    hook.answer = failed("no")
    for _ in range(2):
        with pytest.raises(ConversionError, match="failed: no"):
            await objects_in_v2(converter, of, wanted)
    hook.answer = answer(renamed)
    assert await objects_in_v2(converter, of, wanted)
    assert len(hook.requests()) == 3


@pytest.mark.rows("VER-008")
async def test_converted_objects_that_violate_schema_are_errors(converter: Converter, hook: Webhook) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-embedded-resource": True}}}
    webhook = {"clientConfig": hook.client_config(), "conversionReviewVersions": ["v1"]}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    of = resource(version("v1", CLOSED), version("v2", schema), conversion=conversion)
    hook.answer = answer(lambda it, api_version: {**it, "apiVersion": api_version, "spec": {"apiVersion": 1}})
    with pytest.raises(ConversionError, match="apiVersion"):
        await objects_in_v2(converter, of, entries(1))
    nested: Any = {}
    for _ in range(400):
        nested = {"a": nested}
    hook.answer = answer(lambda it, api_version: {**it, "apiVersion": api_version, "spec": nested})
    with pytest.raises(ConversionError):
        await objects_in_v2(converter, served(hook), entries(1))


@pytest.mark.rows("VER-008")
async def test_waiting_conversions_of_one_webhook_are_limited(
    converter: Converter, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion_limits, "CONVERSIONS_WAITING", 2)
    of, wanted = served(hook), entries(4)
    hook.answer = slowly(0.3, answer(renamed))
    tries = [objects_in_v2(converter, of, [entry]) for entry in wanted]
    found = await asyncio.gather(*tries, return_exceptions=True)
    errors = [it for it in found if isinstance(it, ConversionError)]
    assert [str(error).partition(" failed: ")[2] for error in errors] == [
        "2 requests are waiting for its responses already"
    ] * 2
    assert errors[0].failure == CALL
    told: list[Any] = []
    arrived = asyncio.Event()

    def then(entries: Any) -> None:
        told.append(entries)
        arrived.set()

    converter.prepare(of, of.versions["v2"].codec.view, wanted, then)
    await asyncio.wait_for(arrived.wait(), 20)
    assert [isinstance(entry, ViewedEntry) for entry in told[0]] == [True] * 4


@pytest.mark.rows("VER-009")
async def test_webhook_settings_apply_at_once(converter: Converter, hook: Webhook) -> None:
    hook.answers = {"/b": answer(lambda it, api_version: {**it, "apiVersion": api_version, "spec": {"by": "b"}})}
    wanted = entries(1)
    assert (await objects_in_v2(converter, served(hook, "/a"), wanted))[0]["spec"] != {"by": "b"}
    assert (await objects_in_v2(converter, served(hook, "/b"), wanted))[0]["spec"] == {"by": "b"}
    blank = served(hook, clientConfig={"url": hook.url("/c"), "caBundle": "CiAK"})  # upstream: a blank bundle is none
    with pytest.raises(ConversionError, match="x509: certificate signed by unknown authority"):
        await objects_in_v2(converter, blank, wanted)
    nowhere = served(hook, clientConfig={})
    with pytest.raises(ConversionError, match="must have either service or URL"):
        await objects_in_v2(converter, nowhere, wanted)


@pytest.mark.rows("VER-012")
async def test_cache_of_converted_objects_is_bounded(
    converter: Converter, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_limits, "CONVERTED_BYTES", 40_000)
    of, wanted = served(hook), entries(30, size=4_000)
    for _ in range(2):
        assert len(await objects_in_v2(converter, of, wanted)) == 30
    first, second = ([it["metadata"]["name"] for it in request["objects"]] for request in hook.requests())
    assert len(first) == 30
    assert second == first[: len(second)]  # the last objects were still cached
    assert 20 <= len(second) < 24


async def test_stop_fails_waiting_conversions(hook: Webhook) -> None:
    client = Client()
    hook.answer = slowly(2, answer(renamed))
    async with asyncio.TaskGroup() as group:
        converter = Converter(client)
        converter.start(group)
        waiting = group.create_task(_error_text(objects_in_v2(converter, served(hook), entries(1))))
        async with asyncio.timeout(10):
            while not hook.requests():  # noqa: ASYNC110 - the webhook is a thread
                await asyncio.sleep(0.01)
        late = group.create_task(_error_text(objects_in_v2(converter, served(hook), entries(1, start=5))))
        await asyncio.sleep(0)  # the conversion was requested, but its call has not begun
        await converter.stop()
        assert (await waiting).endswith("the server is stopping")
        assert (await late).endswith("the server is stopping")
        assert (await _error_text(objects_in_v2(converter, served(hook), entries(2)))).endswith(
            "the server is stopping"
        )
    await client.close()


class Answering:
    """A client whose response to each review is ``make(uid, objects)``."""

    def __init__(self, make: Callable[[str, list[dict[str, Any]]], bytes]) -> None:
        self._make = make

    async def post(self, target: Target, body: bytes, timeout: float, *, owner: str, max_bytes: int) -> bytes:
        """Return the response to a review."""
        asked = orjson.loads(body)["request"]
        return self._make(asked["uid"], asked["objects"])


def _success(uid: str, objects: list[Any]) -> bytes:
    response = {"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response})


_LARGE = {"free": {"x": "y" * server_limits.WORK_INLINE}}
_NO_KIND = {"spec": _LARGE}


def _second_spoiled(uid: str, objects: list[dict[str, Any]]) -> bytes:
    """Return a response with one object that is invalid JSON for the fast decoder."""
    found = [{**one, "apiVersion": "example.com/v2", "spec": _LARGE} for one in objects]
    return _success(uid, found).replace(b"yyyy", b"y\xffyy", 1)


@pytest.mark.parametrize(
    ("make", "works"),
    [
        (lambda uid, objects: b"{" * server_limits.WORK_INLINE, ["all_objects"]),
        (lambda uid, objects: _success(uid, [_NO_KIND] * len(objects)), ["all_objects", "find_texts"]),
        (_second_spoiled, ["listed_objects", "__getitem__", "decode"]),
    ],
    ids=["no JSON", "without kinds", "read by the slow decoder"],
)
async def test_large_responses_are_decoded_in_thread(
    make: Callable[[str, list[dict[str, Any]]], bytes], works: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, apart = threading.get_ident(), set()

    def watched(of: Any, name: str) -> None:
        work = getattr(of, name)

        def noticed(*args: Any) -> Any:
            if threading.get_ident() != here:
                apart.add(name)
            return work(*args)

        monkeypatch.setattr(of, name, noticed)

    for name in works:
        watched(review if name.endswith("objects") else review.ConvertedObjects, name)
    of = resource(version("v1", CLOSED), version("v2", OPEN), conversion=HOOK)
    async with asyncio.TaskGroup() as group:
        converter = Converter(Answering(make))
        converter.start(group)
        (outcome,) = await asyncio.gather(objects_in_v2(converter, of, entries(3)), return_exceptions=True)
        await converter.stop()
    assert isinstance(outcome, ConversionError) == (make is not _second_spoiled), outcome
    assert apart == {*works}


async def test_texts_of_objects_without_kind_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    texts_of = pieces.texts_of

    def counted(raw: bytes) -> list[str]:
        looked.append(len(raw))
        return texts_of(raw)

    monkeypatch.setattr(pieces, "texts_of", counted)
    of = resource(version("v1", CLOSED), version("v2", OPEN), conversion=HOOK)
    async with asyncio.TaskGroup() as group:
        converter = Converter(Answering(lambda uid, objects: _success(uid, [{"n": one} for one in range(50)])))
        converter.start(group)
        with pytest.raises(ConversionError, match=r"at index 0: Object 'Kind' is missing in '\{\"n\":0\}'$"):
            await objects_in_v2(converter, of, entries(50))
        await converter.stop()
    assert len(looked) == 1


async def _error_text(work: Any) -> str:
    try:
        await work
    except ConversionError as error:
        return str(error)
    return ""
