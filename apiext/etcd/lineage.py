"""Whether the store that answers is still the one that answered before."""

from apiext.etcd.errors import UNAVAILABLE, StoreReplaced


class Lineage:
    """What is known of the store's identity and time: both only go one way unless it was replaced or restored."""

    def __init__(self) -> None:
        self.cluster_id = 0
        self.term = 0
        self.revision = 0  # the highest revision that anybody was told

    def saw(self, revision: int) -> None:
        """Remember that the store has reached a revision."""
        if revision > self.revision:  # noqa: PLR1730 - max() costs twice as much on this path
            self.revision = revision

    def judge(self, header_cluster: int, term: int, revision: int, floor: int) -> StoreReplaced | None:
        """Compare a linearizable answer with what was known when it was asked for; take over what it says.

        ``floor`` is ``self.revision`` at that time: answers may overtake each other.
        """
        fault = None
        if self.cluster_id not in {0, header_cluster}:
            fault = f"another cluster answers: {header_cluster:x} instead of {self.cluster_id:x}"
        elif revision < floor:
            fault = f"the store went back from revision {floor} to {revision}"
        elif term < self.term:
            fault = f"the store went back from raft term {self.term} to {term}: it was restored"
        self.cluster_id = header_cluster
        if fault:
            self.term, self.revision = term, revision
            return StoreReplaced(UNAVAILABLE, fault)
        self.term = max(self.term, term)
        self.saw(revision)
        return None
