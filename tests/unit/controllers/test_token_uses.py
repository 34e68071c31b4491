"""The time of the last use of a token is stored in its secret.

It is not stored in a new secret of the same name.
"""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from apiext.admission.chain import Chain
from apiext.auth.bound_objects import LAST_USED
from apiext.controllers.token_uses import TokenUses
from apiext.verbs.call import Verbs
from apiext.verbs.reviews import SECRETS
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, server, until

pytestmark = pytest.mark.rows("AUT-001")


def secret(uid: str) -> bytes:
    metadata = {"name": "s", "namespace": "d", "uid": uid, "creationTimestamp": NOW}
    return orjson.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})


@pytest.mark.parametrize("there", ["u1", "u2", ""])
@pytest.mark.parametrize("late", [False, True])
async def test_last_use_label_is_set_only_on_secret_of_token(
    there: str, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    etcd, tokens = FakeEtcd(), SimpleNamespace(used=None)
    async with server(etcd) as one, asyncio.TaskGroup() as group:
        key = one.store.keys.object(SECRETS, "d", "s")
        etcd.put(key, secret("u1"))
        await one.store.fresh()
        if late:
            etcd.hold()
        if there != "u1":
            etcd.remove(key)
            if there:
                etcd.put(key, secret(there))
        verbs = Verbs(one.live, one.store, Chain(), one.controllers.serving, lambda: NOW, lambda: 0.0)
        uses = TokenUses(verbs, cast(Any, tokens))
        uses.start(group)
        etcd.calls.clear()
        tokens.used("d", "s", "u1")
        if late:
            await until(lambda: etcd.calls)
            etcd.release()
        await until(lambda: uses._loop.idle)
        found = etcd.state(key).get(key)
        labels = orjson.loads(found[1])["metadata"].get("labels", {}) if found is not None else None
        assert (labels is None) is (there == "")
        assert (LAST_USED in (labels or {})) is (there == "u1")
        assert not uses._loop._failures, "it is not tried again"
        await uses.stop()
    assert not caplog.records
