"""Compaction of etcd (OPS-002), and recovery of a store that is out of space.

All servers that use the etcd share its compactions.
"""

import asyncio
import logging

from apiext.etcd import errors
from apiext.etcd.client import Etcd
from apiext.storage import limits

# Seconds between compactions: the default of --etcd-compaction-interval, as upstream.
COMPACT_EVERY = 300.0

log = logging.getLogger(__name__)

_REMEDY = ": delete objects; after the next compaction, run `etcdctl defrag` and `etcdctl alarm disarm`"
KEY = b"compact_rev_key"  # upstream's compactRevKey, which is outside of all prefixes


class Compactor:
    """Periodic compaction.

    Each turn compacts to the store's revision at the previous turn. If another server had a turn since then, this turn
    only records the current revision.
    """

    def __init__(self, etcd: Etcd, quota: int = 0) -> None:
        """``quota``: the maximum bytes of the store in this process; 0 for an external etcd."""
        self._etcd = etcd
        self._quota = quota
        self._marked = 0
        self._head = 0

    async def run(self, every: float = COMPACT_EVERY) -> None:
        """Call ``turn`` at intervals of ``every`` seconds, until the task is cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.turn()

    async def turn(self) -> int:
        """Compact once.

        Return the compacted revision, 0 for no compaction. Log errors; the next turn retries.
        """
        try:
            compacted = await self._turn()
            if self._quota:
                await self._warn_if_nearly_full()
            return compacted
        except errors.OutOfSpace:
            return await self._recover_space()
        except errors.FutureRevision:
            self._head = 0  # an older state of the store was restored
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

    async def _recover_space(self) -> int:
        """Compact a store that is out of space.

        If the store is in this process and now has space, also defragment it and allow writes again.
        """
        log.error("the store is out of space and allows only deletions%s", "" if self._quota else _REMEDY)
        try:
            target, self._head = self._head, await self._etcd.head_revision()
            compacted = await self._compact(target)
            if self._quota and (await self._etcd.status()).db_size_in_use < limits.ETCD_NEARLY_FULL * self._quota:
                await self._etcd.defragment()
                for alarm in await self._etcd.alarms():
                    if alarm.kind == "NOSPACE":  # free space does not resolve other alarms
                        await self._etcd.disarm(alarm)
                log.warning("the store was out of space; it was defragmented and allows writes again")
            return compacted
        except errors.EtcdError as error:
            log.warning("the store could not be compacted or defragmented: %s", error)
        return 0

    async def _warn_if_nearly_full(self) -> None:
        size = (await self._etcd.status()).db_size
        if size > limits.ETCD_NEARLY_FULL * self._quota:
            log.warning("the store has %d bytes; it allows no writes over %d bytes", size, self._quota)
