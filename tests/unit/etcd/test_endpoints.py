"""The client leaves an endpoint that is not etcd, but not a member of a faulty cluster."""

import asyncio

import pytest

from apiext.etcd import errors, messages
from apiext.etcd.client import Etcd
from apiext.etcd.errors import EtcdError
from tests.unit.etcd.listening import A, B, Listener, client, until
from tests.unit.etcd.mini import UNSENT, Fault, Mini

pytestmark = pytest.mark.looptime

HOLLOW = [
    EtcdError(14, "no healthy upstream"),
    EtcdError(14, "the endpoint answered with HTTP status 503"),
    EtcdError(7, "the endpoint answered with HTTP status 403"),
    EtcdError(12, "the endpoint answered with HTTP status 404"),
    EtcdError(12, "unknown service etcdserverpb.KV"),
]
ENDED = EtcdError(14, "upstream connect error")


@pytest.mark.parametrize("said", HOLLOW, ids=lambda it: it.message)
async def test_client_switches_from_endpoints_without_etcd(said: EtcdError) -> None:
    mini = Mini(hollow={A: said})
    async with client(mini, A, B) as etcd:
        assert asyncio.get_running_loop().time() < 0.1
        assert (await etcd.create(b"/k", b"1")).ok
        assert {endpoint for endpoint, path in mini.calls if path in (messages.TXN, messages.RANGE)} == {B}


async def test_single_endpoint_without_etcd_fails_the_start() -> None:
    mini = Mini(hollow={A: HOLLOW[0]})
    with pytest.raises(errors.Unavailable, match="no healthy upstream"):
        await Etcd([A], transport=mini.dial).start()


async def test_client_switches_from_a_proxy_that_lost_its_member() -> None:
    """The client leaves an endpoint at the first refused call.

    It also leaves when a watch cannot be reopened.
    """
    mini, loop = Mini(), asyncio.get_running_loop()
    async with client(mini, A, B) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 0)
        await until(lambda: watch.connected)
        revision = (await etcd.create(b"/k", b"1")).revision
        await asyncio.sleep(10)
        mini.hollow[A] = HOLLOW[0]
        for link in list(mini.links):
            for stream in list(link.streams):
                stream.finish(ENDED)
        began = loop.time()
        assert (await etcd.update(b"/k", b"2", revision)).ok
        await until(lambda: heard.revisions == [2, 3])
        assert loop.time() - began < 1


@pytest.mark.parametrize("text", ["etcdserver: leader changed", "etcdserver: server stopped"])
async def test_client_keeps_a_member_that_reports_cluster_errors(text: str) -> None:
    """The client stays with a member during an election.

    Other members would return the same error.
    """
    mini = Mini()
    async with client(mini, A, B) as etcd:
        mini.faults += [Fault(messages.RANGE, EtcdError(14, text))] * 3
        await etcd.get(b"/k")
        assert {endpoint for endpoint, _ in mini.calls} == {A}


@pytest.mark.parametrize(
    ("error", "answered"), [(HOLLOW[0], 1_000.0), (UNSENT, 0.0)], ids=["answers other calls", "refuses one stream"]
)
async def test_one_failed_call_keeps_a_live_connection(error: EtcdError, answered: float) -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        await asyncio.sleep(0.1)
        mini.faults.append(
            Fault(messages.RANGE, error, then=lambda: answered and setattr(mini.links[0], "last_response_at", answered))
        )
        await etcd.get(b"/k")
        assert {endpoint for endpoint, _ in mini.calls} == {A}


async def test_watch_ended_by_a_proxy_reopens_on_the_same_endpoint() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        watch = Listener().watch(etcd, 0)
        await until(lambda: watch.connected)
        await asyncio.sleep(60)
        (stream,) = (stream for link in mini.links for stream in link.streams)
        stream.finish(ENDED)
        await until(lambda: watch.connected)
        assert {endpoint for endpoint, path in mini.calls if path == messages.WATCH} == {A}
