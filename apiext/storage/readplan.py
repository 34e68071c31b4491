"""The source and the revision of a list, by the parameters of the request.

See RV-003, RV-005…007.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from apiext.storage import continuation, limits
from apiext.storage.store import Entry, bytes_of
from apiext.text.quotes import go_quote

Source = Literal["cache", "fresh", "at_least", "exact"]


class BadRevision(ValueError):
    """A resourceVersion that is no unsigned integer of 64 bits.

    The text is upstream's inner error. The server responds with 400 to a list, and with 500 to a get or a watch.
    """

    def __init__(self, text: str, why: str = "invalid syntax") -> None:
        super().__init__(f"strconv.ParseUint: parsing {go_quote(text)}: {why}")


class RevisionWithToken(ValueError):
    """A request with both a continue token and a resourceVersion other than "0" (400, RV-006)."""

    def __init__(self) -> None:
        super().__init__("specifying resource version is not allowed when using continue")


class ListQuery(Struct, frozen=True):
    """The parameters of a list request.

    They are resourceVersion, resourceVersionMatch, limit (0: no limit) and continue. If ``cached`` is False, upstream
    does not cache the resource. resourceVersion "0" then reads the newest state.
    """

    resource_version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    cached: bool = True


class ReadPlan(Struct, frozen=True):
    """The source of a list.

    ``cache`` means to read the cache without waiting, ``fresh`` to read it after CachedStore.fresh, and ``at_least`` to
    read it after CachedStore.at_least. ``exact`` means to read the objects at exactly ``revision``
    (CachedStore.at_revision). ``start_key`` is the key at which the list begins, or "" for the first key.
    """

    source: Source
    revision: int = 0
    start_key: str = ""
    limit: int = 0


def plan(query: ListQuery) -> ReadPlan:
    """Return the source of a list; raise BadToken, BadRevision, RevisionWithToken.

    The caller has validated the query (RV-004): resourceVersionMatch requires a resourceVersion, and with Exact, the
    resourceVersion is not "0".
    """
    limit = max(0, query.limit)
    if query.token:
        start, revision = continuation.decode(query.token)
        if query.resource_version not in {"", "0"}:
            raise RevisionWithToken
        if query.cached and query.resource_version == "0":
            limit = 0  # as upstream, which ignores the limit at resourceVersion 0
        if revision < 0:
            return ReadPlan("fresh", 0, start, limit)
        return ReadPlan("exact", revision, start, limit)
    if not query.resource_version or (not query.cached and query.resource_version == "0"):
        return ReadPlan("fresh", 0, "", limit)
    if query.resource_version == "0":
        return ReadPlan("cache")  # as upstream, which ignores the limit at resourceVersion 0
    revision = parse_revision(query.resource_version)
    exact = query.match == "Exact" or (query.match == "" and limit > 0)
    # "00" is not the special value "0". For an exact revision, upstream passes 0 to etcd, which reads the newest
    # revision. Otherwise every revision of the cache is new enough.
    if revision == 0:
        return ReadPlan("fresh" if exact else "cache", 0, "", limit)
    return ReadPlan("exact" if exact else "at_least", revision, "", limit)


def parse_revision(text: str) -> int:
    """Parse a resourceVersion, "" as 0; raise BadRevision."""
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
    """Return the number of objects to read next: at most twice the ``size`` of the last read.

    ``entries`` are the objects of the last read. Another read is needed if the selectors of the request select too few
    of them.
    """
    average = bytes_of(entries) // len(entries) if entries else 0
    return max(1, min(2 * size, limits.ETCD_PAGE, limits.PART_BYTES // (average + 1)))
