"""Where a list is read, and at which revision: the table of RV-003, RV-005…007."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from apiext.storage import continuation, limits
from apiext.storage.store import Entry, bytes_of
from apiext.text.quotes import go_quote

Source = Literal["cache", "fresh", "at_least", "exact"]


class BadRevision(ValueError):
    """A resourceVersion that is no number of 64 bits; the text is upstream's inner one (400)."""

    def __init__(self, text: str, why: str = "invalid syntax") -> None:
        super().__init__(f"strconv.ParseUint: parsing {go_quote(text)}: {why}")


class RevisionWithToken(ValueError):
    """A resourceVersion beside a token (400, RV-006)."""

    def __init__(self) -> None:
        super().__init__("specifying resource version is not allowed when using continue")


class ListAsk(Struct, frozen=True):
    """The parameters of a list request: resourceVersion, resourceVersionMatch, limit (0: none), continue.

    A resource that upstream does not cache (``cached``) has no state but the newest.
    """

    resource_version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    cached: bool = True


class ReadPlan(Struct, frozen=True):
    """Where to read.

    ``cache``: as it is. ``fresh``: after CachedStore.fresh. ``at_least`` a revision: after CachedStore.at_least.
    ``exact`` at a revision: CachedStore.at_revision. ``after`` is where to begin, as tokens carry it.
    """

    source: Source
    revision: int = 0
    after: str = ""
    limit: int = 0


def plan(ask: ListAsk) -> ReadPlan:
    """Return how to read for a list; raises BadToken, BadRevision, RevisionWithToken.

    The request was validated before (RV-004): no match without a revision, no Exact at "0".
    """
    limit = max(0, ask.limit)
    if ask.token:
        start, revision = continuation.decode(ask.token)
        if ask.resource_version not in {"", "0"}:
            raise RevisionWithToken
        if ask.cached and ask.resource_version == "0":
            limit = 0  # upstream: a limit is ignored at resourceVersion 0
        if revision < 0:
            return ReadPlan("fresh", 0, start, limit)
        return ReadPlan("exact", revision, start, limit)
    if not ask.resource_version or (not ask.cached and ask.resource_version == "0"):
        return ReadPlan("fresh", 0, "", limit)
    if ask.resource_version == "0":
        return ReadPlan("cache")  # upstream: a limit is ignored at resourceVersion 0
    revision = parse_revision(ask.resource_version)
    exact = ask.match == "Exact" or (ask.match == "" and limit > 0)
    if revision == 0:  # "00" is no special text, and etcd's revision 0 is the newest
        return ReadPlan("fresh" if exact else "cache", 0, "", limit)
    return ReadPlan("exact" if exact else "at_least", revision, "", limit)


def parse_revision(text: str) -> int:
    """Return a resourceVersion as a number, "" as 0; raises BadRevision."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise BadRevision(text)
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= 20 else 2**64
    if number >= 2**64:
        raise BadRevision(text, "value out of range")
    return number


def next_part(size: int, entries: Sequence[Entry]) -> int:
    """Return how many objects to read next after a part of that size: more, since too few of these were selected."""
    average = bytes_of(entries) // len(entries) if entries else 0
    return max(1, min(2 * size, limits.ETCD_PAGE, limits.PART_BYTES // (average + 1)))
