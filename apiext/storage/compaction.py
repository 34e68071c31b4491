"""Forgetting old revisions, by turns with every other server on the same etcd (OPS-002), and what if etcd is full."""

import asyncio
import logging

from apiext.etcd import errors
from apiext.etcd.client import Etcd
from apiext.storage import limits

# Seconds between compactions, unless --etcd-compaction-interval says otherwise (upstream: the same).
COMPACT_EVERY = 300.0

log = logging.getLogger(__name__)

_REMEDY = ": delete something; after the next compaction `etcdctl defrag` and `etcdctl alarm disarm` end that"
KEY = b"compact_rev_key"  # upstream: compactRevKey, outside any prefix


class Compactor:
    """Each turn compacts to where the store was one turn ago, unless another server took the turn."""

    def __init__(self, etcd: Etcd, quota: int = 0) -> None:
        """``quota``: bytes that the store of this process may have; 0 for an etcd, which its owner looks after."""
        self._etcd = etcd
        self._quota = quota
        self._marked = 0
        self._head = 0

    async def run(self, every: float = COMPACT_EVERY) -> None:
        """Take a turn every so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.turn()

    async def turn(self) -> int:
        """Take one turn; returns the revision compacted to, 0 for none. Trouble is logged and left for the next."""
        try:
            compacted = await self._turn()
            if self._quota:
                await self._foresee()
            return compacted
        except errors.OutOfSpace:
            return await self._full()
        except errors.FutureRevision:
            self._head = 0  # the store went back in time
        except errors.AuthError as error:
            log.warning(
                "etcd was not compacted (%s): allow its user to write %s, or let another program compact it",
                error,
                KEY.decode(),
            )
        except errors.EtcdError as error:
            log.warning("etcd was not compacted: %s", error)
        return 0

    async def _turn(self) -> int:
        target = self._head
        mark = await self._etcd.update(KEY, str(target).encode(), self._marked)
        self._head = mark.revision
        if not mark.ok:
            self._marked = mark.current.mod_revision if mark.current else 0
            return 0
        self._marked = mark.revision
        return await self._compact(target)

    async def _compact(self, target: int) -> int:
        if not target:
            return 0
        try:
            await self._etcd.compact(target)
        except errors.Compacted:
            return 0
        return target

    async def _full(self) -> int:
        """Compact a store that takes no mark; let the one of this process take writes again, if there is room now."""
        log.error("the store is out of space and takes deletions only%s", "" if self._quota else _REMEDY)
        try:
            target, self._head = self._head, await self._etcd.head_revision()
            compacted = await self._compact(target)
            if self._quota and (await self._etcd.status()).db_size_in_use < limits.ETCD_NEARLY_FULL * self._quota:
                await self._etcd.defragment()
                for alarm in await self._etcd.alarms():
                    if alarm.kind == "NOSPACE":  # room cures no other
                        await self._etcd.disarm(alarm)
                log.warning("the store was out of space; it was defragmented and takes writes again")
            return compacted
        except errors.EtcdError as error:
            log.warning("nothing could be done about it: %s", error)
        return 0

    async def _foresee(self) -> None:
        size = (await self._etcd.status()).db_size
        if size > limits.ETCD_NEARLY_FULL * self._quota:
            log.warning("the store has %d of %d bytes, beyond which it takes no writes", size, self._quota)
