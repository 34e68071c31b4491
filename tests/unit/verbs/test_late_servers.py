"""A server whose watch comes late, and what another one has stored before: it is known before anything is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from apiext import app
from apiext.auth.bonds import Account
from apiext.auth.tokens import Tokens
from apiext.auth.user import SUPERUSER
from apiext.verbs import api
from apiext.verbs.call import Call
from apiext.verbs.reviews import ACCOUNTS
from tests.support.fake_etcd import FakeEtcd, FakeWatch
from tests.unit.controllers.harness import server
from tests.unit.verbs.harness import DEFINITION, Client, body

pytestmark = pytest.mark.rows("RV-017")


class LateEtcd(FakeEtcd):
    """An etcd whose second watch, once it is ``late``, tells nothing before it is asked for progress."""

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
    """Run two servers that serve widgets; the second is as late as its etcd."""
    async with server(etcd) as one, server(etcd) as other:
        await one.define({**DEFINITION, "metadata": {"name": "widgets.example.com", "uid": "d1", "generation": 1}})
        for each in (one, other):
            await each.established("widgets.example.com")
        yield Client(one), Client(other)


@pytest.mark.rows("AUT-001", "KUB-004")
async def test_a_token_of_an_account_that_the_other_server_has_made(tmp_path: Path) -> None:
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
        assert other.server.collection(ACCOUNTS).get("default", "sa") is None
        assert await review() is True
