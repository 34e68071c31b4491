"""Pages in a browser that reach a server which asks nobody who they are (--insecure): none may act in a user's name.

Writes are judged as net/http.CrossOriginProtection of Go 1.25 does it: programs send neither Origin nor Sec-Fetch-Site.
On top of that, no name counts as the server's own but localhost, unless the browser says so itself: the name of a page
may have become that of this machine (DNS rebinding), and browsers tell no Sec-Fetch-Site then.
"""

from collections.abc import Callable, Sequence
from ipaddress import ip_address

from apiext.auth.authorization import is_public
from apiext.http.exchange import Exchange
from apiext.http.heads import Headers
from apiext.meta.status import StatusError
from apiext.schema import patterns

Judge = Callable[[Exchange], None]

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN = frozenset(("same-origin", "none"))
_ABSENT = "\n"  # in no header


def may_be_read_by_one(headers: Headers) -> bool:
    """Whether a request may be a page's: browsers always say which languages are read, scripts can only change which.

    The fetch of Node.js says so, too, but with a Sec-Fetch-Mode, which browsers send only where they trust the way.
    """
    return headers.get("Accept-Language", _ABSENT) != _ABSENT and not headers.get("Sec-Fetch-Mode", "")


def judge(origins: Sequence[str]) -> Judge:
    """Return what raises a 403 for requests of pages; ``origins`` are patterns of those that may do everything."""
    allowed = [patterns.searcher(origin) for origin in origins]

    def judged(exchange: Exchange) -> None:
        writes, places = exchange.method not in _SAFE, exchange.sender.places
        if writes not in places:
            places[writes] = _stranger(exchange.headers, writes)
        place = places[writes]
        if place and not any(matches(place) for matches in allowed) and not is_public(exchange.path):
            raise StatusError(
                403,
                "Forbidden",
                f"forbidden: a page of {place} may not call a server without authentication, unless "
                "--cors-allowed-origins names it",
            )

    return judged


def _stranger(headers: Headers, writes: bool) -> str:
    """Return the origin of the page that sends a request, empty for the server's own and for what is no page."""
    if site := headers.get("Sec-Fetch-Site", ""):
        return (headers.get("Origin", "") or f"another origin ({site})") if writes and site not in _OWN else ""
    origin = headers.get("Origin", "") if writes else ""
    if not origin and not may_be_read_by_one(headers):
        return ""
    host = headers.get("Host", "")
    if origin and origin.lower().partition("://")[2] != host.lower():
        return origin
    return "" if _is_here(host) else origin or f"http://{host}"


def _is_here(host: str) -> bool:
    """Whether a Host is an address or localhost, which nobody else's pages have."""
    name = host.lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
