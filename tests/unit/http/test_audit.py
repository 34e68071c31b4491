"""Audit events of requests that fail or take long, or whose connection ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from apiext.audit.auditor import Auditor
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.audit.policy import RECEIVED, load
from apiext.http import audit as audit_module
from apiext.http import filters
from apiext.http.audit import Body
from apiext.verbs.call import Outcome
from apiext.webhooks.client import Client
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

pytestmark = pytest.mark.rows("AUD-001")

EVERYTHING = b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}"
ONE = f"{COLLECTION}/a"


class Kept:
    """A backend that keeps events; with ``broken`` it reports failures."""

    def __init__(self, *, strict: bool = False, broken: bool = False) -> None:
        self.strict = strict
        self.broken = broken
        self.told: list[Event] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        """Do nothing."""

    def put(self, event: Event) -> asyncio.Future[bool]:
        """Keep an event."""
        self.told.append(event)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        done.set_result(not self.broken)
        return done

    async def stop(self) -> None:
        """Do nothing."""

    @property
    def stages(self) -> list[str]:
        """Return the stages of the recorded events."""
        return [event.stage for event in self.told]

    def last(self) -> dict[str, Any]:
        """Return the last event as written to the log."""
        found: dict[str, Any] = json.loads(self.told[-1].line())
        return found


def auditor(kept: Kept, policy: bytes = EVERYTHING) -> Auditor:
    return Auditor(load(policy)[0], [kept], Counters(), Client())


@on_uvloop
async def test_audit_records_an_exception_as_panic() -> None:
    shelf, kept = Shelf(), Kept()
    shelf.fails = RuntimeError("boom")
    async with serving(shelf, auditor=auditor(kept)) as server, connected(server) as client:
        assert (await client.ask("GET", ONE)).code == 500
    assert kept.stages == ["RequestReceived", "Panic"]
    assert kept.last()["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "APIServer panic'd: boom",
        "reason": "InternalError",
        "code": 500,
    }


@on_uvloop
@pytest.mark.parametrize("end", [ConnectionResetError(), asyncio.CancelledError()], ids=["lost", "cancelled"])
async def test_audit_records_a_closed_connection(end: BaseException) -> None:
    shelf, kept = Shelf(), Kept()
    shelf.fails = end
    async with serving(shelf, auditor=auditor(kept)) as server, connected(server) as client:
        client.send("GET", ONE)
        await until(lambda: len(kept.told) == 2)
    assert kept.last()["responseStatus"] == {
        "metadata": {},
        "status": "Success",
        "message": "Connection closed early",
        "code": 200,
    }


@on_uvloop
async def test_failed_strict_audit_refuses_the_request() -> None:
    shelf, kept = Shelf(), Kept(strict=True, broken=True)
    audit = auditor(kept)
    async with serving(shelf, auditor=audit) as server, connected(server) as client:
        answer = await client.ask("GET", ONE)
    assert (answer.code, answer.json["message"]) == (500, "Internal error occurred: failed to store audit event")
    assert kept.stages == [RECEIVED]
    assert audit.counters.refused.value == 1
    assert not shelf.calls


@on_uvloop
async def test_failed_lenient_audit_serves_the_request() -> None:
    shelf, kept = Shelf(), Kept(broken=True)
    shelf.put("a")
    async with serving(shelf, auditor=auditor(kept)) as server, connected(server) as client:
        assert (await client.ask("GET", ONE)).code == 200


PART = b'{"metadata":{"managedFields":[{}],"name":"%b"}}'
TABLE = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":['
ROW = b'{"cells":[1],"object":' + PART + b"}"


@pytest.mark.rows("AUD-002")
@pytest.mark.parametrize(
    ("parts", "then"),
    [
        ((PART % b"a", b"\n"), b'{"metadata":{"name":"a"}}'),
        ((b'{"items":[', PART % b"a" + b"," + PART % b"b", b",", PART % b"c", b"]}\n"),
         b'{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}},{"metadata":{"name":"c"}}]}'),
        ((b'{"items":[' + PART % b"a", b",", PART % b"b" + b"]}\n"),
         b'{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}'),
        ((TABLE, ROW % b"a" + b"," + ROW % b"b", b",", ROW % b"c", b"]}\n"),
         TABLE + b",".join(b'{"cells":[1],"object":{"metadata":{"name":"%c"}}}' % name for name in b"abc") + b"]}"),
        ((TABLE, ROW % b"a" + b"]}\n"), TABLE + b'{"cells":[1],"object":{"metadata":{"name":"a"}}}]}'),
        ((b'{"kind":"Table","items":[', ROW % b"a", b"]}\n"), b'{"kind":"Table","items":[' + ROW % b"a" + b"]}"),
        ((b'{\n  "a": 1\n}',), b'{"a":1}'),
    ],
)  # fmt: skip
def test_audit_omits_managed_fields_of_all_response_parts(parts: tuple[bytes, ...], then: bytes) -> None:
    assert Body(parts, "application/json", packed=False).bare_json() == then


@on_uvloop
async def test_audit_annotates_the_latency_of_slow_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, kept = Shelf(), Kept()
    shelf.put("a")
    async with serving(shelf, auditor=auditor(kept)) as server, connected(server) as client:
        await client.ask("GET", ONE)
        quick = kept.last()
        monkeypatch.setattr(audit_module, "AUDIT_LATENCY", 0.0)
        await client.ask("GET", ONE)
    assert "apiserver.latency.k8s.io/total" not in quick["annotations"]
    assert kept.last()["annotations"]["apiserver.latency.k8s.io/total"].endswith("ms")


@on_uvloop
async def test_metadata_level_omits_custom_objects_of_kind_status(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"apiVersion": "example.com/v1", "kind": "Status", "metadata": {"name": "a"}, "message": "secret"}

    async def delete(*_: Any) -> Outcome:
        return Outcome(200, document=held)

    shelf, kept = Shelf(), Kept()
    monkeypatch.setattr(shelf, "delete", delete)
    policy = EVERYTHING.replace(b"RequestResponse", b"Metadata")
    async with serving(shelf, auditor=auditor(kept, policy)) as server, connected(server) as client:
        assert (await client.ask("DELETE", ONE)).json == held
    assert kept.last()["responseStatus"] == {"metadata": {}, "code": 200}


@on_uvloop
async def test_audit_level_none_records_no_event() -> None:
    shelf, kept = Shelf(), Kept()
    shelf.put("a")
    policy = b"{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}"
    audit = auditor(kept, policy)
    async with serving(shelf, auditor=audit) as server, connected(server) as client:
        assert (await client.ask("GET", ONE + "?resourceVersion=0")).code == 200
    assert not kept.told
    assert audit.counters.of_level[0].value == 1


@on_uvloop
async def test_shutdown_audits_the_completion_of_watches() -> None:
    shelf, kept = Shelf(), Kept()
    async with serving(shelf, auditor=auditor(kept)) as server, connected(server) as client:
        client.send("GET", f"{COLLECTION}?watch=1")
        await client.head()
        assert kept.stages == ["RequestReceived", "ResponseStarted"]
    assert kept.stages[-1] == "ResponseComplete"


def test_filters_without_audit_omit_the_audit_filter() -> None:
    plain, telling = filters.filters(audited=False), filters.filters(audited=True)
    assert tuple(plain) == tuple(one for one in filters.FILTERS if one is not filters.audit)
    free = filters.filters(audited=False, authorizes=False)
    assert free == [one for one in plain if one is not filters.authorize]
    assert filters.filters(audited=True, authorizes=False) == telling, "the log tells that everybody may"
    told = [one for one in telling if one not in plain]
    assert told == [filters.audit, filters.authorize_audited]
    assert filters.authenticate not in telling, "the audit filter does it"
    assert len(telling) == len(plain)
