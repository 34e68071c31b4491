"""Forgetting old revisions, by turns with every other server on the same etcd (OPS-002)."""

import logging

from apiext.etcd import errors
from apiext.etcd.client import Etcd

log = logging.getLogger(__name__)

KEY = b"compact_rev_key"  # upstream: compactRevKey, outside any prefix


class Compactor:
    """Each turn compacts to where the store was one turn ago, unless another server took the turn."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._marked = 0
        self._head = 0

    async def turn(self) -> int:
        """Take one turn; returns the revision compacted to, 0 for none. Trouble is logged and left for the next."""
        try:
            return await self._turn()
        except errors.FutureRevision:
            self._head = 0  # the store went back in time
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
        if not target:
            return 0
        try:
            await self._etcd.compact(target)
        except errors.Compacted:
            return 0
        return target
