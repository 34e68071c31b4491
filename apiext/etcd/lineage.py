"""Whether the store that answers is still the one that answered before."""

from apiext.etcd.errors import UNAVAILABLE, StoreReplaced


class Lineage:
    """What is known of the store's identity and time: both only go one way unless it was replaced or restored."""

    def __init__(self) -> None:
        self.cluster_id = 0
        self.term = 0
        self.revision = 0  # the highest revision that anybody was told
        self.era = 0  # how often the store was replaced

    def saw(self, revision: int) -> None:
        """Remember that the store has reached a revision."""
        if revision > self.revision:  # noqa: PLR1730 - max() costs twice as much on this path
            self.revision = revision

    def judge(self, header_cluster: int, term: int, revision: int, floor: int, era: int) -> StoreReplaced | None:
        """Compare a linearizable answer with what was known when it was asked for; take over what it says.

        ``floor`` and ``era`` are ``self.revision`` and ``self.era`` at that time: answers may overtake each other.
        """
        fault = None
        if self.cluster_id not in {0, header_cluster}:
            fault = f"another cluster answers: {header_cluster:x} instead of {self.cluster_id:x}"
        elif revision < floor and era == self.era:
            fault = f"the store went back from revision {floor} to {revision}"
        elif term < self.term:
            fault = f"the store went back from raft term {self.term} to {term}: it was restored"
        self.cluster_id = header_cluster
        if fault:
            return self._replaced(fault, term, revision)
        self.term = max(self.term, term)
        self.saw(revision)
        return None

    def wrote(self, revision: int, floor: int, era: int) -> StoreReplaced | None:
        """Compare the revision of a write with what was known when it was sent, and take it over.

        ``floor`` and ``era`` are as of ``judge``. A write makes a revision of its own.
        """
        if revision > floor or era != self.era:
            self.saw(revision)
            return None
        fault = f"the store went back from revision {floor}: a write made {revision}"
        return self._replaced(fault, self.term, revision)

    def contradicted(self, what: str) -> StoreReplaced:
        """Take in that a change which was told is not in the store's past."""
        return self._replaced(f"the store went back, and was carried on: {what}", self.term, self.revision)

    def _replaced(self, fault: str, term: int, revision: int) -> StoreReplaced:
        self.term, self.revision = term, revision
        self.era += 1
        return StoreReplaced(UNAVAILABLE, fault)
