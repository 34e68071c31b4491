"""Documents are built outside of the event loop, once for all waiting requests."""

import asyncio
import threading
from email.utils import formatdate
from typing import Any

import pytest

from apiext.catalog.served import Catalog
from apiext.http import limits
from apiext.http.exchange import Exchange, Head, Sender
from apiext.http.published import Builder, Conditional, Regenerations
from apiext.telemetry import Telemetry


async def test_waiting_requests_share_one_build() -> None:
    builder, catalog, made = Builder(), Catalog(), list[str]()
    let_go = threading.Event()

    def make(now: Catalog) -> str:
        assert now is catalog
        made.append(threading.current_thread().name)
        assert let_go.wait(10)
        return "document"

    async def ask() -> str:
        return await builder.get(catalog, "a", make, slow=True)

    async with asyncio.TaskGroup() as group:
        first, second, leaving = (group.create_task(ask()) for _ in range(3))
        await asyncio.sleep(0)
        leaving.cancel()  # a cancelled request does not cancel the shared work
        await asyncio.sleep(0)
        let_go.set()
    assert (first.result(), second.result(), leaving.cancelled()) == ("document", "document", True)
    assert len(made) == 1
    assert made[0].startswith("documents")
    assert await builder.get(catalog, "a", make) == "document", "remembered with the catalog"
    assert len(made) == 1
    builder.close()


async def test_slow_builds_do_not_wait_for_large_builds() -> None:
    builder, catalog, let_go = Builder(), Catalog(), threading.Event()

    def make_large(_: Catalog) -> str:
        assert let_go.wait(10)
        return "everything"

    async with asyncio.TaskGroup() as group:
        large = group.create_task(builder.get(catalog, "a", make_large, large=True))
        await asyncio.sleep(0)
        assert await builder.get(catalog, "b", lambda _: "one", slow=True) == "one"
        assert not large.done()
        let_go.set()
    assert large.result() == "everything"
    builder.close()


async def test_small_documents_are_built_on_the_loop() -> None:
    builder, names = Builder(), list[str]()

    def make(_: Catalog) -> str:
        names.append(threading.current_thread().name)
        return "document"

    assert await builder.get(Catalog(), "a", make) == "document"
    assert names == [threading.main_thread().name]
    builder.close()


async def test_failed_build_fails_all_waiters_and_is_retried() -> None:
    builder, catalog, calls = Builder(), Catalog(), list[int]()

    def make(_: Catalog) -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no")
        return "document"

    failed = await asyncio.gather(
        *(builder.get(catalog, "a", make, slow=True) for _ in range(3)), return_exceptions=True
    )
    assert [str(one) for one in failed] == ["no"] * 3
    assert await builder.get(catalog, "a", make, slow=True) == "document"
    builder.close()


class _Connection:
    holder = None


def exchange(**headers: str) -> Exchange:
    sent: Any = {name.replace("_", "-"): value for name, value in headers.items()}
    connection: Any = _Connection()
    return Exchange(Head("GET", "/x", sent, Sender(sent)), connection, 0.0)


@pytest.mark.rows("OAS-001", "OAS-002")
def test_changes_within_one_second_get_different_dates() -> None:
    clock = [1000.0]
    conditional = Conditional(lambda: clock[0])
    assert dict(conditional.headers("a", '"1"'))["Last-Modified"] == formatdate(1000, usegmt=True)
    assert dict(conditional.headers("a", '"2"'))["Last-Modified"] == formatdate(1001, usegmt=True)
    assert conditional.unchanged(exchange(If_Modified_Since=formatdate(1000, usegmt=True)), "a", '"2"') is None
    same = conditional.unchanged(exchange(If_Modified_Since=formatdate(1001, usegmt=True)), "a", '"2"')
    assert same is not None
    assert same.code == 304
    clock[0] = 2000.5
    assert dict(conditional.headers("a", '"2"'))["Last-Modified"] == formatdate(1001, usegmt=True)
    assert dict(conditional.headers("a", '"3"'))["Last-Modified"] == formatdate(2000, usegmt=True)


@pytest.mark.rows("OAS-002")
def test_if_none_match_takes_precedence_over_a_date() -> None:
    conditional = Conditional(lambda: 1000.0)
    late = formatdate(9000, usegmt=True)
    assert conditional.unchanged(exchange(If_None_Match='"other"', If_Modified_Since=late), "a", '"1"') is None
    assert conditional.unchanged(exchange(If_Modified_Since=late), "a", '"1"') is not None


def test_number_of_cached_dates_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISHED_PATHS", 3)
    conditional = Conditional(lambda: 1000.0)
    for number in range(10):
        conditional.headers(str(number), '"1"')
    assert len(conditional._changes) <= 3


@pytest.mark.rows("OAS-009")
def test_regenerations_name_the_definition_and_the_reason() -> None:
    telemetry = Telemetry()
    counted = Regenerations(telemetry)
    path = "apis/a.b/v1"
    for tag, made_of in (
        ('"1"', {"xs.a.b": b"1"}),
        ('"1"', {"xs.a.b": b"not looked at"}),
        ('"2"', {"xs.a.b": b"2", "ys.a.b": b"1"}),
        ('"3"', {"ys.a.b": b"1"}),
    ):
        counted.v3(path, tag, lambda found=made_of: found)  # type: ignore[misc]  # a default binds the turn
        counted.v2(tag, lambda found=made_of: found)  # type: ignore[misc]
    text = telemetry.text()
    for crd, reason in (("xs.a.b", "add"), ("xs.a.b", "update"), ("xs.a.b", "remove"), ("ys.a.b", "add")):
        labels = f'crd="{crd}",reason="{reason}"'
        assert f"apiextensions_openapi_v2_regeneration_count{{{labels}}} 1\n" in text
        assert f'apiextensions_openapi_v3_regeneration_count{{group="a.b",version="v1",{labels}}} 1\n' in text
    assert 'reason="update"} 2' not in text
