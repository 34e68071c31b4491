"""The client with a simulated etcd: results, errors, retries, and lost responses of writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from apiext.etcd import errors, messages, requests
from apiext.etcd import limits as etcd_limits
from apiext.etcd.client import Etcd, KeyValue, WriteResult, prefix_end
from apiext.etcd.errors import EtcdError, UnknownOutcome
from apiext.etcd.transport import TLS, Endpoint, Spawn
from tests.unit.etcd.mini import LOST, SLOW, UNSENT, Fault, Link, Mini

pytestmark = pytest.mark.looptime

A, B, C = "http://a:2379", "http://b:2379", "http://c:2379"


@asynccontextmanager
async def client(mini: Mini, *endpoints: str, user: str = "", password: str = "") -> AsyncIterator[Etcd]:
    etcd = Etcd(endpoints or [A], transport=mini.dial, user=user, password=password)
    await etcd.start()
    try:
        yield etcd
    finally:
        await etcd.close()


@pytest.mark.rows("ETC-005")
async def test_writes_and_reads() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        assert await etcd.get(b"/k") is None
        assert await etcd.create(b"/k", b"1") == WriteResult(True, 2)
        first = KeyValue(b"/k", b"1", 2, 2, 1)
        assert await etcd.create(b"/k", b"2") == WriteResult(False, 2, first)
        assert await etcd.update(b"/k", b"2", 9) == WriteResult(False, 2, first)
        assert await etcd.update(b"/k", b"2", 2) == WriteResult(True, 3)
        assert await etcd.get(b"/k") == KeyValue(b"/k", b"2", 3, 2, 2)
        assert await etcd.update(b"/new", b"0", 0) == WriteResult(True, 4)
        found = await etcd.range(b"/", prefix_end(b"/"))
        assert ([kv.key for kv in found.kvs], found.count, found.revision, found.more) == (
            [b"/k", b"/new"],
            2,
            4,
            False,
        )
        assert await etcd.delete(b"/k", 2) == WriteResult(False, 4, KeyValue(b"/k", b"2", 3, 2, 2))
        assert await etcd.delete(b"/k", 3) == WriteResult(True, 5)
        assert await etcd.delete(b"/k", 3) == WriteResult(False, 5)
        assert await etcd.head_revision() == 5


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_failed_guards_refuse_writes_and_are_returned(count: int) -> None:
    mini = Mini()
    there = mini.put(b"/g0", b"")
    guards = [(b"/g0", there), (b"/g1", 0), (b"/g2", 0)][:count]
    wrong = [(b"/g0", 77), *guards[1:]]
    async with client(mini) as etcd:
        refused = await etcd.create(b"/k", b"1", guards=wrong)
        assert refused == WriteResult(False, 2, None, (there, 0, 0)[:count])
        assert await etcd.create(b"/k", b"1", guards=guards) == WriteResult(True, 3)
        assert (await etcd.delete(b"/k", 3, guards=wrong)).guards == (there, 0, 0)[:count]
        assert await etcd.delete(b"/k", 3, guards=guards) == WriteResult(True, 4)
        assert await etcd.create(b"/k", b"1") == WriteResult(True, 5)


# -- writes whose response was lost; by name: verb, applied, concurrent writes of other clients, result

IN_DOUBT = {
    "create applied": ("create", True, None, WriteResult(True, 3)),
    "create not applied": ("create", False, None, None),
    "create not applied, key created by another client": (
        "create",
        False,
        lambda mini: mini.put(b"/new", b"theirs"),
        None,
    ),
    "update applied": ("update", True, None, None),
    "update not applied is retried": ("update", False, None, WriteResult(True, 3)),
    "update not applied, same update by another client": ("update", False, lambda mini: mini.put(b"/k", b"mine"), None),
    "update applied, key updated by another client": ("update", True, lambda mini: mini.put(b"/k", b"theirs"), None),
    "update applied, key deleted by another client": ("update", True, lambda mini: mini.delete(b"/k"), None),
    "deletion applied": ("delete", True, None, None),
    "deletion not applied is retried": ("delete", False, None, WriteResult(True, 3)),
    "deletion not applied, key updated by another client": (
        "delete",
        False,
        lambda mini: mini.put(b"/k", b"theirs"),
        WriteResult(False, 3, KeyValue(b"/k", b"theirs", 3, 2, 2)),
    ),
    "deletion applied, key created by another client": ("delete", True, lambda mini: mini.put(b"/k", b"theirs"), None),
}


@pytest.mark.parametrize("error", [LOST, SLOW, None], ids=["lost", "election", "deadline"])
@pytest.mark.parametrize("name", IN_DOUBT)
async def test_write_outcome_after_a_lost_response(name: str, error: EtcdError | None) -> None:
    verb, applied, others, outcome = IN_DOUBT[name]
    mini = Mini()
    mini.put(b"/k", b"old")
    async with client(mini, A, B) as etcd:
        write = {
            "create": lambda: etcd.create(b"/new", b"mine"),
            "update": lambda: etcd.update(b"/k", b"mine", 2),
            "delete": lambda: etcd.delete(b"/k", 2),
        }[verb]
        mini.faults.append(Fault(messages.TXN, error, applied, then=lambda: others and others(mini)))
        if outcome is None:
            with pytest.raises(UnknownOutcome):
                await write()
        else:
            assert await write() == outcome


async def test_write_outcome_after_two_lost_responses() -> None:
    mini = Mini()
    mini.put(b"/k", b"old")
    async with client(mini) as etcd:
        mini.faults += [Fault(messages.TXN, LOST), Fault(messages.TXN, LOST)]
        assert await etcd.update(b"/k", b"mine", 2) == WriteResult(True, 3)
        mini.faults += [Fault(messages.TXN, LOST), Fault(messages.TXN, LOST, applied=True)]
        with pytest.raises(UnknownOutcome):
            await etcd.update(b"/k", b"mine", 3)


async def test_late_first_attempt_makes_the_outcome_unknown() -> None:
    mini = Mini()
    mini.put(b"/k", b"old")
    async with client(mini) as etcd:
        # the first attempt takes effect between the deciding read and the second attempt
        late = requests.put(b"/k", b"mine", 2, (), 0)
        mini.faults += [
            Fault(messages.TXN, LOST),
            Fault(messages.TXN, UNSENT, then=lambda: mini.call(messages.TXN, late)),
        ]
        with pytest.raises(UnknownOutcome):  # it may be another client's write of the same value
            await etcd.update(b"/k", b"mine", 2)


async def test_guard_changed_after_a_lost_response_refuses_the_update() -> None:
    mini = Mini()
    mini.put(b"/k", b"old")
    async with client(mini) as etcd:
        mini.faults.append(Fault(messages.TXN, LOST, then=lambda: mini.put(b"/g", b"new")))
        assert await etcd.update(b"/k", b"mine", 2, guards=[(b"/g", 0)]) == WriteResult(
            False, 3, KeyValue(b"/k", b"old", 2, 2, 1), (3,)
        )


async def test_unreachable_etcd_after_a_lost_response_is_unknown() -> None:
    mini = Mini()
    async with client(mini) as etcd:

        def all_down() -> None:
            mini.down.add(A)
            mini.cut()

        mini.faults.append(Fault(messages.TXN, LOST, applied=True, then=all_down))
        with pytest.raises(UnknownOutcome):
            await etcd.create(b"/k", b"mine")


async def test_unsent_writes_are_retried() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        mini.faults += [Fault(messages.TXN, UNSENT), Fault(messages.TXN, UNSENT)]
        assert await etcd.create(b"/k", b"v") == WriteResult(True, 2)
        assert mini.count(messages.TXN) == 3


async def test_calls_fail_after_their_budget_while_etcd_is_down() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        mini.down |= {A, B}
        mini.cut()
        began = asyncio.get_running_loop().time()
        with pytest.raises(errors.Unavailable) as caught:
            await etcd.create(b"/k", b"v")
        assert not caught.value.sent
        assert asyncio.get_running_loop().time() - began == pytest.approx(10, abs=1)
        with pytest.raises(errors.Unavailable):
            await etcd.get(b"/k")
        assert not etcd.connected
        mini.down.clear()
        assert await etcd.create(b"/k", b"v") == WriteResult(True, 2)


REFUSALS = [
    (3, "etcdserver: request is too large", errors.TooLarge),
    (8, "etcdserver: mvcc: database space exceeded", errors.OutOfSpace),
    (8, "etcdserver: too many requests", errors.Overloaded),
    (7, "etcdserver: permission denied", errors.AuthError),
    (15, "etcdserver: corrupt cluster", errors.Corrupt),
]


@pytest.mark.parametrize(("code", "text", "kind"), REFUSALS)
async def test_refused_writes_are_not_retried(code: int, text: str, kind: type[EtcdError]) -> None:
    mini = Mini()
    async with client(mini) as etcd:
        mini.faults.append(Fault(messages.TXN, EtcdError(code, text)))
        with pytest.raises(kind):
            await etcd.create(b"/k", b"v")
        assert mini.count(messages.TXN) == 1


async def test_refused_retry_after_a_lost_response_stays_unknown() -> None:
    mini = Mini()
    mini.put(b"/k", b"old")
    async with client(mini) as etcd:
        mini.faults += [
            Fault(messages.TXN, LOST),
            Fault(messages.TXN, EtcdError(8, "etcdserver: mvcc: database space exceeded")),
        ]
        with pytest.raises(UnknownOutcome):
            await etcd.update(b"/k", b"v", 2)


async def test_reads_at_future_and_compacted_revisions_raise() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        with pytest.raises(errors.FutureRevision):
            await etcd.get(b"/k", revision=99)
        mini.revision, mini.compacted = 20, 10
        with pytest.raises(errors.Compacted):
            await etcd.get(b"/k", revision=5)


@pytest.mark.parametrize("fault", [LOST, UNSENT, SLOW, EtcdError(2, "etcdserver: server stopped")])
async def test_failed_reads_are_retried(fault: EtcdError) -> None:
    mini = Mini()
    mini.put(b"/k", b"v")
    async with client(mini, A, B) as etcd:
        mini.faults += [Fault(messages.RANGE, fault), Fault(messages.RANGE, fault)]
        found = await etcd.get(b"/k")
        assert found is not None
        assert found.value == b"v"


async def test_read_switches_from_a_silent_member() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        for link in mini.links:
            link.frozen = True
        began = asyncio.get_running_loop().time()
        await etcd.get(b"/k")
        assert asyncio.get_running_loop().time() - began < 4
        assert mini.calls[-1] == (B, messages.RANGE)


async def test_reconnect_uses_the_next_member() -> None:
    """After a lost member the client connects to the next one in order."""
    mini = Mini(down={A})
    async with client(mini, A, B, C) as etcd:
        assert {link.endpoint for link in mini.links} == {B}
        mini.cut()
        await etcd.get(b"/k")
        await asyncio.sleep(1)
        assert {link.endpoint for link in mini.links} == {C}


async def test_read_switches_past_several_silent_members() -> None:
    """A probe ignores messages that the member sent before it."""
    mini = Mini()
    async with client(mini, A, B, C) as etcd:
        for link in mini.links:
            link.frozen = True
        dial = mini.dial

        async def frozen(endpoint: Endpoint, tls: TLS, spawn: Spawn) -> Link:
            link = await dial(endpoint, tls, spawn)
            if link.endpoint == B:
                asyncio.get_running_loop().call_soon(setattr, link, "frozen", True)  # after the connection preface
            return link

        etcd._calls._dial = frozen
        await etcd.get(b"/k")
        asked = [endpoint for endpoint, path in mini.calls if path == messages.RANGE]
        assert list(dict.fromkeys(asked)) == [A, B, C]


async def test_retry_detects_a_silent_member_despite_older_messages() -> None:
    """A retry ignores messages that the member sent before it."""
    mini, loop = Mini(), asyncio.get_running_loop()
    revision = mini.put(b"/k", b"old")
    async with client(mini, A, B) as etcd:
        await asyncio.sleep(1)
        mini.faults.append(Fault(messages.TXN, UNSENT))
        writing = asyncio.gather(etcd.update(b"/k", b"new", revision))
        began = loop.time()
        await asyncio.sleep(etcd_limits.FIRST_PAUSE / 4)
        await etcd.get(b"/other")
        for link in mini.links:
            link.frozen = True
        assert [result.ok for result in await writing] == [True]
        assert (loop.time() - began < 4, mini.calls[-1]) == (True, (B, messages.TXN))


async def test_slow_call_keeps_a_member_that_answers_other_calls() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        mini.faults.append(Fault(messages.RANGE, None))
        slow = asyncio.gather(etcd.get(b"/k"))
        await asyncio.sleep(1)
        await etcd.get(b"/other")
        await slow
        assert {endpoint for endpoint, _ in mini.calls} == {A}


async def test_start_fails_while_all_members_are_down() -> None:
    mini = Mini(down={A, B})
    etcd = Etcd([A, B], transport=mini.dial)
    with pytest.raises(errors.Unavailable, match="http://b:2379: refused"):
        await etcd.start()
    with pytest.raises(errors.Closed):
        await etcd.head_revision()


async def test_start_timeout_is_separate_from_the_call_budget() -> None:
    """The time limit of the start is separate from the limits of calls."""
    mini, loop = Mini(down={A}), asyncio.get_running_loop()
    for within, patience in ((1.0, 1.0), (100.0, 10.0)):
        began = loop.time()
        with pytest.raises(errors.Unavailable):
            await Etcd([A], transport=mini.dial).start(within)
        assert loop.time() - began == pytest.approx(patience, abs=0.5)
    mini.down.clear()
    etcd = Etcd([A], transport=mini.dial)
    await etcd.start(1.0)
    mini.down.add(A)
    mini.cut()
    began = loop.time()
    with pytest.raises(errors.Unavailable):
        await etcd.get(b"/k")
    assert loop.time() - began == pytest.approx(10, abs=0.5)
    await etcd.close()


@pytest.mark.parametrize("endpoints", [[], ["ftp://x"], ["http://"], ["unix://"]])
def test_invalid_endpoints_raise_value_error(endpoints: list[str]) -> None:
    with pytest.raises(ValueError, match="etcd"):
        Etcd(endpoints)


# -- credentials


async def test_client_logs_in_once_per_connection() -> None:
    mini = Mini(password="secret")
    async with client(mini, user="root", password="secret") as etcd:
        await etcd.create(b"/k", b"v")
        assert mini.count(messages.AUTHENTICATE) == 2  # once per connection


async def test_concurrent_calls_renew_an_expired_token_once() -> None:
    mini = Mini(password="secret")
    async with client(mini, user="root", password="secret") as etcd:
        mini.token = "t2"
        done = await asyncio.gather(*(etcd.create(b"/k%d" % n, b"v") for n in range(20)), etcd.get(b"/k"))
        assert all(result.ok for result in done[:20] if isinstance(result, WriteResult))
        assert mini.count(messages.AUTHENTICATE) == 3


async def test_wrong_password_fails_the_start_immediately() -> None:
    mini = Mini(password="secret")
    etcd = Etcd([A], transport=mini.dial, user="root", password="guess")
    with pytest.raises(errors.AuthError):
        await etcd.start()
    assert asyncio.get_running_loop().time() < 1


async def test_watch_switches_from_a_silent_member() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        heard: list[bytes] = []
        etcd.watch(b"/", b"0", 2, on_batch=lambda it: heard.extend(e.kv.key for e in it.events), on_end=print)
        await asyncio.sleep(10)
        (watching,) = [link for link in mini.links if link.streams]
        watching.frozen = True
        await etcd.create(b"/a", b"v")
        assert (watching.endpoint, heard) == (A, [])
        await asyncio.sleep(6)
        assert heard == [b"/a"]
        assert [link.endpoint for link in mini.links if link.streams and not link.frozen] == [B]


async def test_calls_switch_from_a_member_that_sends_no_responses() -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        revision = (await etcd.create(b"/a", b"v")).revision
        for link in mini.links:
            link.frozen, link.last_byte_at = (
                True,
                float("inf"),
            )  # the member gets no messages of other members, but still responds
        began = asyncio.get_running_loop().time()
        assert (await etcd.update(b"/a", b"w", revision)).ok
        assert asyncio.get_running_loop().time() - began < 4
        assert mini.calls[-1] == (B, messages.TXN)


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"/a/", b"/a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0"), (b"a\xfe", b"a\xff")]
)
def test_prefix_end(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end
