"""Reads of the newest revision: readers share one request, and it times out."""

from __future__ import annotations

import asyncio

import pytest

from apiext.etcd import errors, messages
from apiext.etcd import limits as etcd_limits
from apiext.etcd.calls import now
from tests.unit.etcd.mini import Fault, Mini
from tests.unit.etcd.test_client import A, client

pytestmark = pytest.mark.looptime


async def test_head_reads_share_probes() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        before = mini.count(messages.RANGE)
        early = [asyncio.gather(etcd.head_revision()) for _ in range(50)]
        assert await asyncio.gather(*early) == [[1]] * 50
        assert mini.count(messages.RANGE) - before <= 2


async def test_head_read_sees_all_writes_before_it() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        first = asyncio.gather(etcd.head_revision())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # its probe has been sent: a reader that starts after this write must see the write
        written = (await etcd.create(b"/k", b"v")).revision
        assert await etcd.head_revision() >= written
        await first


async def test_cancelled_head_reads_leave_other_reads_running() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(etcd.head_revision()) for _ in range(4)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            tasks[2].cancel()
        assert [task.result() for task in (tasks[1], tasks[3])] == [1, 1]
        assert await etcd.head_revision() == 1


async def test_failed_probe_fails_all_waiting_readers() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        mini.down.add(A)
        mini.cut()
        answers = await asyncio.gather(*(etcd.head_revision() for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [errors.Unavailable] * 3
        mini.down.clear()
        assert await etcd.head_revision() == 1


async def test_each_head_read_fails_after_its_own_budget() -> None:
    async def ask(after: float) -> float:
        await asyncio.sleep(after)
        began = now()
        with pytest.raises(errors.Unavailable):
            await etcd.head_revision()
        return now() - began

    mini = Mini()
    async with client(mini) as etcd:
        mini.down.add(A)
        mini.cut()
        took = await asyncio.gather(*map(ask, (0, 0.5, 3, 9, 11, 12)))
    assert etcd_limits.CALL_BUDGET - 1 <= min(took) <= max(took) <= etcd_limits.CALL_BUDGET + 0.5


async def test_later_head_reads_succeed_after_etcd_returns() -> None:
    async def ask(after: float) -> int | str:
        await asyncio.sleep(after)
        try:
            return await etcd.head_revision()
        except errors.Unavailable:
            return "gone"

    mini = Mini()
    async with client(mini) as etcd:
        mini.down.add(A)
        mini.cut()
        asyncio.get_running_loop().call_later(etcd_limits.CALL_BUDGET + 0.5, mini.down.clear)
        assert await asyncio.gather(*map(ask, (0, 5, 9))) == ["gone", 1, 1]


async def test_close_fails_waiting_head_reads() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        mini.faults.append(Fault(messages.RANGE))
        asking = asyncio.gather(etcd.head_revision(), return_exceptions=True)
        await asyncio.sleep(0.1)
        waiting = asyncio.gather(etcd.head_revision(), return_exceptions=True)
        await asyncio.sleep(0)
        await etcd.close()
        async with asyncio.timeout(10):
            found = [*await asking, *await waiting]
    assert [type(error) for error in found] == [errors.Closed] * 2


async def test_silent_etcd_is_detected_without_requests() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        await asyncio.sleep(60)
        assert etcd.answering
        mini.faults.extend(Fault(messages.RANGE) for _ in range(4))
        await asyncio.sleep(4.5)
        assert not etcd.answering
        await asyncio.sleep(20)
        assert etcd.answering
        mini.down.add(A)
        mini.cut()
        await asyncio.sleep(4.5)
        for _ in range(100):  # also between a failed probe and the next
            assert not etcd.answering
            await asyncio.sleep(0.25)
        mini.down.clear()
        await asyncio.sleep(3)
        assert etcd.answering
