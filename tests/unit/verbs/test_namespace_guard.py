"""A create leaves no object in a namespace that is deleted at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.chain import Chain
from apiext.admission.lifecycle import NamespaceLifecycle
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs.admission_plugins import Namespaces
from apiext.verbs.call import Verbs
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, Server, until
from tests.unit.verbs.harness import Client, serving_widgets

pytestmark = pytest.mark.rows("NSP-004", "NSP-005")


class Pause:
    """A plug-in at the end of the chain that blocks a validated create."""

    name = "Pause"

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        return new

    async def review(self, attributes: Attributes) -> None:
        self.waiting.set()
        await self.go.wait()


class InDefault(Client):
    """A client whose creates go through admission, as in a server."""

    def __init__(self, server: Server, pause: Pause) -> None:
        super().__init__(server)
        store, live = server.store, server.live
        chain = Chain([NamespaceLifecycle(Namespaces(live, store)), pause])
        loop = asyncio.get_running_loop()
        self.verbs = Verbs(live, store, chain, server.controllers.serving, lambda: NOW, loop.time)


@asynccontextmanager
async def served(etcd: FakeEtcd, pause: Pause) -> AsyncIterator[InDefault]:
    async with serving_widgets(etcd) as one:
        yield InDefault(one, pause)


def namespace(client: Client) -> object:
    return client.server.collection(NAMESPACES).state.get("", "default")


async def test_create_fails_if_namespace_is_deleted_before_commit() -> None:
    pause = Pause()
    async with served(FakeEtcd(), pause) as client, asyncio.TaskGroup() as group:
        creating = group.create_task(create_error(client))
        await pause.waiting.wait()
        await client.server.delete_namespace("default")
        await until(lambda: namespace(client) is None)
        pause.go.set()
        assert (await creating).code == 404
        assert await client.stored("a") is None


async def test_create_fails_if_namespace_terminates_before_commit() -> None:
    pause = Pause()
    async with served(FakeEtcd(), pause) as client:
        pause.go.set()
        await client.create("held", metadata={"finalizers": ["example.com/hold"]})
        pause.go.clear()
        pause.waiting.clear()
        async with asyncio.TaskGroup() as group:
            creating = group.create_task(create_error(client))
            await pause.waiting.wait()
            await client.server.delete_namespace("default")
            pause.go.set()
            error = await creating
        assert (error.code, error.reason) == (403, "Forbidden")
        assert "because it is being terminated" in error.message
        assert await client.stored("a") is None


async def create_error(client: Client) -> StatusError:
    with pytest.raises(StatusError) as error:
        await client.create("a")
    return error.value


async def test_create_succeeds_if_namespace_labels_change() -> None:
    pause = Pause()
    async with served(FakeEtcd(), pause) as client, asyncio.TaskGroup() as group:
        creating = group.create_task(client.create("a"))
        await pause.waiting.wait()
        collection = client.server.collection(NAMESPACES)
        entry = collection.state.get("", "default")
        assert entry is not None
        raw = entry.raw.replace(b'"labels":{', b'"labels":{"a":"b",')
        await client.server.store.update(collection, "", "default", raw, entry.revision)
        pause.go.set()
        assert (await creating).code == 201


async def test_create_fails_if_stale_cache_has_deleted_namespace() -> None:
    etcd, pause = FakeEtcd(), Pause()
    async with served(etcd, pause) as late, served(etcd, pause) as other:
        pause.go.set()
        etcd.hold()
        namespaces = late.server.collection(NAMESPACES)
        entry = namespaces.state.get("", "default")
        assert entry is not None
        await late.server.store.delete_key(other.server.store.keys.object(NAMESPACES, "", "default"), entry.revision)
        assert namespaces.state.get("", "default") is entry  # the watch has no event of it
        async with asyncio.TaskGroup() as group:
            creating = group.create_task(create_error(late))
            await asyncio.sleep(0.05)
            assert await late.stored("a") is None
            etcd.release()
            assert (await creating).code == 404
        assert await late.stored("a") is None
