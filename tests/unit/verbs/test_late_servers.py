"""A server whose watch is late accepts requests that are valid for the newest state.

The newest state is that in etcd.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from apiext import app
from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.chain import Chain
from apiext.admission.lifecycle import NamespaceLifecycle
from apiext.auth.bound_objects import Account
from apiext.auth.tokens import Tokens
from apiext.auth.user import SUPERUSER
from apiext.documents.document import Document
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs import admission_plugins, api
from apiext.verbs.call import Call
from apiext.verbs.reviews import ACCOUNTS
from tests.support.fake_etcd import FakeEtcd, FakeWatch
from tests.unit.controllers.harness import server, until
from tests.unit.verbs.harness import DEFINITION, WIDGETS, Client, body, widget

pytestmark = pytest.mark.rows("RV-017")


class LateEtcd(FakeEtcd):
    """An etcd whose second watch, once it is ``late``, sends nothing before a progress request."""

    late = False

    def watch(self, *span: object, **options: object) -> FakeWatch:
        second = bool(self.watches)
        watch = super().watch(*span, **options)  # type: ignore[arg-type]
        deliver, request = watch.deliver, watch.request_progress

        def asked() -> bool:
            self.late = False
            return request()

        if second:
            watch.deliver = lambda: None if self.late else deliver()  # type: ignore[method-assign]
            watch.request_progress = asked  # type: ignore[method-assign]
        return watch


@asynccontextmanager
async def two(etcd: LateEtcd) -> AsyncIterator[tuple[Client, Client]]:
    """Run two servers that serve widgets; the watch of the second can be late."""
    async with server(etcd) as one, server(etcd) as other:
        await one.define({**DEFINITION, "metadata": {"name": "widgets.example.com", "uid": "d1", "generation": 1}})
        for each in (one, other):
            await each.established("widgets.example.com")
        yield Client(one), Client(other)


@pytest.mark.rows("AUT-001", "KUB-004")
async def test_token_of_account_unknown_to_late_cache_is_valid(tmp_path: Path) -> None:
    etcd = LateEtcd()
    async with two(etcd) as (one, other):
        store = other.server.store
        accounts = Tokens(tmp_path / "key", ["https://issuer"], find=app._find_in(store))
        accounts.fresh = lambda: app._follow_accounts(store)
        other.verbs.accounts = accounts
        token = accounts.issue(Account("default", "sa", "u1"), 600).token
        reviews = other.server.live.current.resource("authentication.k8s.io", "tokenreviews")
        assert reviews is not None
        served = reviews.versions["v1"]

        async def review() -> bool:
            call = Call("create", served, reviews, served.endpoints[""], None, "", {}, SUPERUSER)
            asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
            document = (await api.create(other.verbs, call, body(asked))).document
            assert document is not None
            return bool(document["status"].get("authenticated"))

        assert await review() is False
        etcd.late = True
        raw = orjson.dumps({"metadata": {"name": "sa", "namespace": "default", "uid": "u1"}})
        await one.server.store.create(one.server.collection(ACCOUNTS), "default", "sa", raw)
        assert other.server.collection(ACCOUNTS).state.get("default", "sa") is None
        assert await review() is True


STRICT = {"fieldValidation": ["Strict"]}
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def schema(**fields: Document) -> Document:
    """Return a schema whose spec has ``fields``."""
    spec = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"spec": spec}}


async def redefine(one: Client, **fields: Document) -> None:
    """Change the schema of widgets through one server, and wait until it serves the change."""

    def change(document: Document) -> None:
        document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema(**fields)
        document["metadata"]["generation"] += 1

    await one.server.change("widgets.example.com", change)
    await one.server.controllers.serving.refresh("example.com", "widgets")


class Denies:
    """A plug-in that refuses every create and counts its calls."""

    name = "Denies"

    def __init__(self) -> None:
        self.asked = 0

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        self.asked += 1
        raise status.forbidden(attributes.resource, attributes.name_for_denial, "no")


async def write(other: Client, what: str) -> Document:
    """Write a widget with a new field or a field of another type, and return its spec."""
    document = widget("a", spec={"n": "text"} if "type" in what else {"m": 1})
    if "PUT" in what and (stored := await other.stored("a")) is not None:
        document["metadata"]["resourceVersion"] = str(stored.revision)
    query = {**(STRICT if "type" not in what else {}), **({"dryRun": ["All"]} if "dry" in what else {})}
    if "apply" in what:
        call = other.call("patch", "a", {**query, "fieldManager": ["me"]})
        found = await api.patch(other.verbs, call, "application/apply-patch+yaml", orjson.dumps(document))
    elif "PUT" in what:
        found = await api.update(other.verbs, other.call("update", "a", query), body(document))
    else:
        found = await api.create(other.verbs, other.call("create", "", query), body(document))
    spec: Document = other.shown(found)["spec"]
    return spec


WRITES = (
    "create, a field", "create, a type", "dry create, a type", "PUT, a field", "apply, a field", "apply, a type",
    "dry apply, a type",
)  # fmt: skip


@pytest.mark.rows("ETC-010", "WRI-013", "WRI-014")
@pytest.mark.parametrize("what", WRITES)
async def test_write_valid_by_newest_definition_is_accepted(what: str) -> None:
    etcd = LateEtcd()
    async with two(etcd) as (one, other):
        await redefine(one, n=NUMBER)
        await other.server.store.fresh()
        await other.server.controllers.serving.refresh("example.com", "widgets")
        if "PUT" in what:
            await other.create("a")
        etcd.late = True
        await redefine(one, n=TEXT, m=NUMBER)
        assert etcd.late
        assert await write(other, what) == ({"n": "text"} if "type" in what else {"m": 1})


@pytest.mark.rows("ETC-010", "WRI-013")
@pytest.mark.parametrize("what", [one for one in WRITES if "dry" not in one])
async def test_write_invalid_by_newest_definition_is_refused(what: str) -> None:
    async with two(LateEtcd()) as (one, other):
        if "PUT" in what:
            await other.create("a")
        await redefine(one, n=NUMBER)
        await other.server.store.fresh()
        await other.server.controllers.serving.refresh("example.com", "widgets")
        with pytest.raises(StatusError) as refused:
            await write(other, what)
        assert refused.value.code in (400, 422, 500)


@pytest.mark.rows("ADM-001")
async def test_a_denied_create_calls_admission_once() -> None:
    async with two(LateEtcd()) as (_, other):
        denies = Denies()
        other.verbs.admission = Chain([denies])
        for what in ("create, a type", "apply, a type"):
            with pytest.raises(StatusError) as refused:
                await write(other, what)
            assert refused.value.code == 403
        assert denies.asked == 2


@pytest.mark.rows("NSP-003", "NSP-004")
@pytest.mark.parametrize("again", [True, False], ids=["recreated", "deleted"])
async def test_late_server_rereads_terminating_namespace(again: bool) -> None:
    etcd = LateEtcd()
    async with two(etcd) as (one, other):
        await one.create("held", metadata={"finalizers": ["x.io/y"]})
        await one.server.delete_namespace("default")
        await other.server.store.fresh()
        namespaces = other.server.collection(NAMESPACES)
        find = admission_plugins.Namespaces(other.server.live, other.server.store)
        other.verbs.admission = Chain([NamespaceLifecycle(find)])
        with pytest.raises(StatusError) as refused:
            await other.create("a")
        assert refused.value.code == 403
        etcd.late = True
        held = await one.stored("held")
        assert held is not None
        await one.server.store.delete(one.server.collection(WIDGETS), "default", "held", held.revision)
        await until(lambda: one.server.collection(NAMESPACES).state.get("", "default") is None)
        assert namespaces.state.get("", "default") is not None
        if again:
            await one.server.define_namespace("default")
            assert (await other.create("a")).code == 201
        else:
            with pytest.raises(StatusError) as refused:
                await other.create("a")
            assert refused.value.code == 404
