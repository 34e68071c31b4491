"""Requests to a server that asks nobody who they are (--insecure): no page of another origin acts in a user's name.

Writes are judged as net/http.CrossOriginProtection of Go 1.25 does it: programs send neither Origin nor Sec-Fetch-Site.
A page's own name may have become an address of this machine (DNS rebinding), and browsers send no Sec-Fetch-Site then:
so a Host that anybody may have registered is refused, whoever sends it.
"""

import re
import socket
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
_OURS = (".localhost", ".internal")  # ends of names that nobody can register (RFC 6761, ICANN's resolution of 2024)
_NUMBER = re.compile("(:[0-9]*)?")


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
                f"forbidden: {_foreign(exchange.headers) or f'a page of {place}'} may not call a server without "
                "authentication, unless --cors-allowed-origins names it",
            )

    return judged


def _foreign(headers: Headers) -> str:
    host = headers.get("Host", "")
    return "" if is_here(host) else f"a request for http://{host}, which may be a page's name for this machine,"


def _stranger(headers: Headers, writes: bool) -> str:
    """Return the origin of the page that may have sent a request, empty for the server's own and for programs."""
    if site := headers.get("Sec-Fetch-Site", ""):
        return (headers.get("Origin", "") or f"another origin ({site})") if writes and site not in _OWN else ""
    host = headers.get("Host", "")
    origin = headers.get("Origin", "") if writes else ""
    if origin and origin.lower().partition("://")[2] != host.lower():
        return origin
    return "" if is_here(host) else origin or f"http://{host}"


def is_here(host: str) -> bool:
    """Whether a Host is one that no page of another origin has.

    That is an address, a name without a dot, one that nobody can register, or the name of this machine.
    """
    name, rest = host.lower(), ""
    if name.startswith("["):
        name, mark, rest = name[1:].partition("]")
        return bool(mark and _NUMBER.fullmatch(rest) and _is_address(name))
    name, mark, rest = name.partition(":")
    name = name.removesuffix(".")
    if _NUMBER.fullmatch(mark + rest) is None:
        return False
    return "." not in name or name.endswith(_OURS) or _is_address(name) or name == socket.gethostname().lower()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
