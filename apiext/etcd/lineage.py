"""Detection of a store that was replaced by another store, or restored from a backup."""

from apiext.etcd.errors import UNAVAILABLE, StoreReplaced


class Lineage:
    """The cluster id, the raft term and the revision of the store.

    If a response has another cluster id, or a lower term or revision, the store was replaced.
    """

    def __init__(self) -> None:
        self.cluster_id = 0
        self.term = 0
        self.revision = 0  # the highest revision that callers have received since the last replacement
        self.era = 0  # the number of detected replacements of the store

    def observe(self, revision: int) -> None:
        """Record that the store has reached a revision."""
        if revision > self.revision:  # noqa: PLR1730 - max() takes twice as long here
            self.revision = revision

    def compare(self, header_cluster: int, term: int, revision: int, floor: int, era: int) -> StoreReplaced | None:
        """Compare a linearizable response with the lineage, then update the lineage.

        Return None if the store is the same. ``floor`` and ``era`` are ``self.revision`` and ``self.era`` at the time
        of the request. The revision is compared with ``floor``, since responses may arrive in another order than their
        requests.
        """
        fault = None
        if self.cluster_id not in {0, header_cluster}:
            fault = f"another cluster responds: {header_cluster:x} instead of {self.cluster_id:x}"
        elif revision < floor and era == self.era:
            fault = f"the store went back from revision {floor} to {revision}"
        elif term < self.term:
            fault = f"the store went back from raft term {self.term} to {term}: it was restored"
        self.cluster_id = header_cluster
        if fault:
            return self._replaced(fault, term, revision)
        self.term = max(self.term, term)
        self.observe(revision)
        return None

    def wrote(self, revision: int, floor: int, era: int) -> StoreReplaced | None:
        """Compare the revision of a write with the lineage, then update the lineage.

        The comparison uses the lineage at the time of the request. ``floor`` and ``era`` are as in ``compare``. Each
        write must have a higher revision than earlier responses. So return an error if ``revision`` is not higher than
        ``floor``, unless a replacement was detected since the request.
        """
        if revision > floor or era != self.era:
            self.observe(revision)
            return None
        fault = f"the store went back from revision {floor}: a write made {revision}"
        return self._replaced(fault, self.term, revision)

    def contradicted(self, what: str) -> StoreReplaced:
        """Record that the store lacks a change that a watch has delivered.

        ``what`` describes the change.
        """
        return self._replaced(
            f"the store went back to an older state and was then changed: {what}", self.term, self.revision
        )

    def _replaced(self, fault: str, term: int, revision: int) -> StoreReplaced:
        self.term, self.revision = term, revision
        self.era += 1
        return StoreReplaced(UNAVAILABLE, fault)
