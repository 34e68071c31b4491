"""A create about which nobody has to be asked is decided in one go, and as if everybody had been asked."""

from dataclasses import replace
from itertools import combinations
from threading import current_thread, main_thread
from typing import Any

import orjson
import pytest

from apiext import limits
from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.chain import Chain, Plugin
from apiext.admission.lifecycle import ACCESS_REVIEWS, NamespaceLifecycle
from apiext.documents.document import Document, View
from apiext.meta.status import StatusError, bad_request
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.verbs import api, judging
from apiext.verbs.call import Call
from apiext.verbs.judges import Namespaces
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import Server
from tests.unit.verbs.harness import WIDGETS, Client, body, serving_widgets, widget

pytestmark = pytest.mark.rows("ADM-001", "NSP-003", "NSP-004", "WRI-001")


class Asked(NamespaceLifecycle):
    """The plug-in that counts when it has to be asked."""

    def __init__(self, namespaces: Namespaces, *, knowing: bool) -> None:
        super().__init__(namespaces, *((namespaces.known,) if knowing else ()))
        self.times = 0

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        self.times += 1
        return await super().mutate(attributes, new)


class Watchful:
    """A plug-in that is idle or not."""

    name = "Watchful"

    def __init__(self, *, idle: bool) -> None:
        self.idle = idle


class InDefault(Client):
    """A client whose creates are admitted as a server admits them; one that does not know asks each time."""

    def __init__(self, server: Server, *more: Plugin, knowing: bool = True) -> None:
        super().__init__(server)
        self.lifecycle = Asked(Namespaces(server.live, server.store), knowing=knowing)
        self.verbs.admission = Chain([self.lifecycle, *more])


async def refused(client: Client) -> StatusError:
    with pytest.raises(StatusError) as error:
        await client.create("a")
    return error.value


async def test_nobody_is_asked_about_a_create_in_an_open_namespace() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one)
        assert (await client.create("a")).code == 201
        assert client.lifecycle.times == 0
        await client.create("b", call=client.call("create", query={"dryRun": ["All"]}))
        assert client.lifecycle.times == 1, "a dry run goes the long way"


def refuse(new: Document, old: View | None) -> Document:
    raise bad_request("no address is left")


class Grows:
    """A plug-in that makes objects large."""

    name = "Grows"
    idle = False

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        attributes.size = limits.OFF_LOOP
        return {**new, "spec": {"n": 2}} if new is not None else None


async def test_what_admission_makes_large_is_judged_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, judge = list[bool](), judging.judge

    def judged(call: Call, new: Document, old: View | None) -> None:
        threads.append(current_thread() is not main_thread())
        judge(call, new, old)

    monkeypatch.setattr(judging, "judge", judged)
    async with serving_widgets(FakeEtcd()) as one:
        await InDefault(one).create("a", spec={"n": 1})  # the first of its kind is judged in a thread anyway
        threads.clear()
        await InDefault(one).create("small", spec={"n": 1})
        client = InDefault(one, Grows())
        await client.create("b", spec={"n": 1})
        await client.patch("a", {"spec": {"n": 3}})
        assert threads == [False, True, True]


@pytest.mark.parametrize("idle", [True, False])
async def test_a_plug_in_at_work_is_asked(idle: bool) -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one, Watchful(idle=idle))
        assert (await client.create("a")).code == 201
        assert client.lifecycle.times == (0 if idle else 1)


async def test_a_namespace_that_ends_is_looked_at() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one)
        await client.create("held", metadata={"finalizers": ["example.com/hold"]})
        await one.delete_namespace("default")
        error = await refused(client)
        assert (error.code, error.reason) == (403, "Forbidden")
        assert "because it is being terminated" in error.message
        assert await client.stored("a") is None


async def test_a_namespace_that_is_not_there_is_looked_for() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one)
        await one.delete_namespace("default")
        error = await refused(client)
        assert (error.code, client.lifecycle.times) == (404, 1)


async def test_moments_are_counted_where_they_were_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one)
        passed: list[tuple[str, str]] = []
        monkeypatch.setattr(Chain, "passed", lambda _, *told: passed.append(told))
        await client.create("a", spec={"n": 1})
        assert passed == [("admit", "CREATE"), ("validate", "CREATE")]
        passed.clear()
        with pytest.raises(StatusError):
            await client.create("/")
        assert passed == [("admit", "CREATE")]
        passed.clear()
        call = client.call("create")
        call.endpoint = replace(call.endpoint, prepare=refuse)
        with pytest.raises(StatusError):
            await client.create("c", call=call)
        assert passed == [("admit", "CREATE")]
        passed.clear()
        await client.create("b", call=client.call("create", query={"dryRun": ["All"]}))
        assert passed == [("validate", "CREATE")], "what mutates is asked, to change the object or not"
        passed.clear()
        await client.patch("a", {"spec": {"n": 2}})
        assert passed == [("admit", "UPDATE"), ("validate", "UPDATE")]
        passed.clear()
        with pytest.raises(StatusError):
            await client.patch("a", {"metadata": {"labels": {"/": "x"}}})
        assert passed == [("admit", "UPDATE")]
        passed.clear()
        with pytest.raises(StatusError):
            await client.delete("a", {"preconditions": {"uid": "other"}})
        assert not passed
        await client.delete("a")
        assert passed == [("admit", "DELETE"), ("validate", "DELETE")]


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "gone"])
async def test_what_is_known_of_a_namespace_is_compared(gone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    etcd, looked = FakeEtcd(), list[object]()
    async with serving_widgets(etcd) as one, serving_widgets(etcd) as other:
        client = InDefault(one)
        entry = one.collection(NAMESPACES).get("", "default")
        assert entry is not None
        look = CachedStore.fresh

        async def fresh(store: CachedStore, *of: Collection | None) -> int:
            looked.append(await client.stored("a"))
            etcd.release()
            return await look(store, *of)

        etcd.hold()
        if gone:
            await other.store.delete_key(other.store.keys.object(NAMESPACES, "", "default"), entry.revision)
        else:
            raw = entry.raw.replace(b'"labels":{', b'"labels":{"a":"b",')
            await other.store.update(other.collection(NAMESPACES), "", "default", raw, entry.revision)
        monkeypatch.setattr(CachedStore, "fresh", fresh)
        assert client.lifecycle.opens(WIDGETS, "default") == {"default": entry.revision}, "the watch says nothing"
        if gone:
            assert (await refused(client)).code == 404
        else:
            assert (await client.create("a")).code == 201
        assert looked[0] is None, "nothing was stored by what was known"
        assert (await client.stored("a") is None) is gone


async def test_access_reviews_and_what_is_in_no_namespace_rest_on_nothing() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        lifecycle = InDefault(one).lifecycle
        assert lifecycle.opens(WIDGETS, None) == {}
        assert lifecycle.opens(ACCESS_REVIEWS, "absent") == {}
        assert lifecycle.opens(WIDGETS, "absent") is None


FIELDS: dict[str, Document] = {
    "spec": {"spec": {"n": 1, "list": [{"a": "b"}]}},
    "status": {"status": {"n": 1}},
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "a wrong label": {"metadata": {"labels": {"/": "b"}}},
    "finalizers that warn": {"metadata": {"finalizers": ["plain"]}},
    "owners twice": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}] * 2,
        }
    },
    "what the server sets": {"metadata": {"uid": "mine", "generation": 7, "selfLink": "/"}},
    "a revision": {"metadata": {"resourceVersion": "7"}},
    "no revision": {"metadata": {"resourceVersion": "x"}},
    "a prefix": {"metadata": {"generateName": "a-"}},
    "a wrong name": {"metadata": {"name": "/"}},
    "another namespace": {"metadata": {"namespace": "other"}},
}


async def outcome(client: InDefault, given: Document) -> list[Any]:
    """Return the code of an answer, what is wrong, what is warned of, and the object but for its uid and revision."""
    call = client.call("create")
    try:
        found = await api.create(client.verbs, call, body(given))
    except StatusError as error:
        return [error.code, error.message, error.details, call.warnings]
    assert found.entry is not None
    document = orjson.loads(found.entry.raw)
    assert len(document["metadata"].pop("uid")) == 36
    await client.server.store.delete(
        client.server.collection(WIDGETS), "default", found.entry.name, found.entry.revision
    )
    if "generateName" in document["metadata"]:
        assert document["metadata"].pop("name")
    return [found.code, call.warnings, orjson.dumps(document)]


async def test_a_create_comes_out_as_if_everybody_had_been_asked() -> None:
    together = [names for count in (0, 1, 2) for names in combinations(FIELDS, count)]
    async with serving_widgets(FakeEtcd()) as one:
        knows, asks = InDefault(one), InDefault(one, knowing=False)
        for number, names in enumerate(together):
            document = widget("a")
            for name in names:
                metadata = {**document["metadata"], **FIELDS[name].get("metadata", {})}
                document = {**document, **FIELDS[name], "metadata": metadata}
            if document["metadata"]["name"] == "a":
                document["metadata"]["name"] = f"a{number}"
            found = [await outcome(client, document) for client in (knows, asks)]
            assert found[0] == found[1], names
        assert asks.lifecycle.times > knows.lifecycle.times
