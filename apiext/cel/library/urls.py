"""Parse and print URLs as Go's net/url does."""

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

from apiext.cel.costs import COPY
from apiext.cel.effort import spend_copy, spend_text, spend_work
from apiext.cel.library.addresses import Refused
from apiext.cel.library.addresses import parse as parse_address
from apiext.cel.overloads import Library, row
from apiext.cel.types import URL
from apiext.cel.values import Fault, Map, Special, Value, no_overload
from apiext.text.quotes import go_quote

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_CUT = "".join(map(chr, range(0xDC80, 0xDD00)))  # surrogates for the bytes of a truncated character
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PORT = re.compile(r"(?::[0-9]*)?\Z")
_HOST = re.compile(r"[^\x00-\x20#/?@\\^`{|}\x7f]*\Z")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*\Z")
_PATH_SAFE = "-_.~!$&'()*+,/:;=@[]"
_PATH_KEPT = "-_.~$&+,/:;=@"  # characters that Go does not escape in a path
_FRAGMENT_KEPT = "-_.~!$&()*+,/:;=?@"


class Url(Special):
    """A parsed URL."""

    __slots__ = ("host", "path", "query", "raw_path", "scheme", "text", "user")
    type_name = URL.name
    go_type = "cel.URL"

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str, user: str | None = None) -> None:
        self.text = text
        self.scheme = scheme
        self.user = user
        self.host = host
        self.raw_path = path
        self.path = unquote_to_bytes(path)
        self.query = query

    def __str__(self) -> str:
        return self.text

    def same(self, other: Value) -> bool | Fault:
        """Compare URLs as Go prints them."""
        return self._written() == other._written() if type(other) is Url else no_overload()

    def _written(self) -> tuple[object, ...]:
        """Return the parts of the URL that Go prints, in a normal form."""
        body, _, fragment = self.text.partition("#")
        rest, *query = (body[len(self.scheme) + 1 :] if self.scheme else body).partition("?")
        opaque = "" if rest.startswith("/") else rest
        user = None if self.user is None else [unquote_to_bytes(part) for part in self.user.partition(":")]
        shown = _escaped(fragment, _PATH_SAFE + "?", _FRAGMENT_KEPT)
        return self.scheme, opaque, rest.startswith("//"), user, self.host, self.escaped(), query, shown

    def escaped(self) -> str:
        """Return the escaped path; keep its original form if it is valid."""
        return _escaped(self.raw_path, _PATH_SAFE, _PATH_KEPT)


def _escaped(raw: str, safe: str, kept: str) -> str:
    if all(char in safe or char == "%" or (char.isascii() and char.isalnum()) for char in raw):
        return raw
    return quote_from_bytes(unquote_to_bytes(raw), kept)


class _Refused(ValueError):
    """The error of a text that is not a URL; the message is Go's."""


def parse(text: str, request: bool = True) -> Url:
    """Parse a URL; with ``request``, accept only an absolute URL, an absolute path or ``*``.

    Raise _Refused for an invalid URL.
    """
    body, _, fragment = (text, "", "") if request else text.partition("#")
    try:
        if not text and request:
            raise _Refused("empty url")
        if _CONTROL.search(body):
            raise _Refused("net/url: invalid control character in URL")
        found = _parsed(text, body, request)
        body = text  # the following errors of Go quote the whole text
        _check_escapes(fragment)
        return found
    except _Refused as wrong:
        raise _Refused(f"parse {go_quote(body)}: {wrong}") from None


def _parsed(text: str, body: str, request: bool) -> Url:
    if body == "*":
        return Url(text, "", "", "*", "")
    if body.startswith(":"):
        raise _Refused("missing protocol scheme")
    found = _SCHEME.match(body)
    scheme = found[1].lower() if found else ""
    rest = body[found.end() :] if found else body
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(text, scheme, "", "", query)  # opaque, such as mailto:
        if request:
            raise _Refused("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _Refused("first path segment in URL cannot contain colon")
    user, host = None, ""
    if (scheme or (not request and not rest.startswith("///"))) and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(scheme, authority)
    _check_escapes(rest)
    return Url(text, scheme, host, rest, query, user)


def _check_escapes(text: str) -> None:
    found = _BAD_ESCAPE.search(text)
    if found is not None:
        raise _Refused(f"invalid URL escape {_quoted_bytes(text[found.start() : found.start() + 3])}")


def _quoted_bytes(text: str) -> str:
    """Return the first three bytes of an invalid escape, quoted as in Go's error."""
    cut = text.encode("utf-8", "surrogatepass")[:3].decode("utf-8", "surrogateescape")
    kept = cut.rstrip(_CUT)
    shown = "".join(f"\\x{ord(char) - 0xDC00:02x}" for char in cut[len(kept) :])
    return f'{go_quote(kept)[:-1]}{shown}"'


def _authority(scheme: str, text: str) -> tuple[str | None, str]:
    """Return (user information or None, host)."""
    user, at, address = text.rpartition("@")
    host = _parsed_host(scheme, address)
    if at:
        if not _USER.match(user):
            raise _Refused("net/url: invalid userinfo")
        _check_escapes(user)
    return user if at else None, host


def _parsed_host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise _Refused("invalid IP-literal")
    if not bracket:
        return _literal(host)
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if colon >= 0 and not _PORT.match(host[colon:]):
        raise _Refused(f"invalid port {go_quote(host[colon:])} after host")
    return _unescaped(host)


def _literal(host: str) -> str:
    """Parse a host with an IPv6 address in brackets."""
    end = host.rfind("]")
    if end < 0:
        raise _Refused("missing ']' in host")
    if not _PORT.match(host[end + 1 :]):
        raise _Refused(f"invalid port {go_quote(host[end + 1 :])} after host")
    address, percent, zone = host[1:end].partition("%25")
    name = _unescaped(address) + (_unescaped(percent + zone, zone=True) if percent else "")
    try:
        found, _ = parse_address(name)
    except Refused as wrong:
        raise _Refused(f"invalid host: {wrong}") from None
    if found.version == 4:
        raise _Refused("invalid IP-literal")
    return f"[{name}]{host[end + 1 :]}"


def _unescaped(host: str, zone: bool = False) -> str:
    """Return a host, or the zone of an address, without escapes."""
    if "%" not in host and _HOST.match(host):
        return host
    at = 0
    while at < len(host):
        char = host[at]
        if char == "%":
            written = host[at : at + 3]
            if _BAD_ESCAPE.match(written):
                raise _Refused(f"invalid URL escape {_quoted_bytes(written)}")
            code = int(written[1:], 16)
            allowed = chr(code) == " " or _HOST.match(chr(code)) if zone and code < 0x80 else code >= 0x80
            if written != "%25" and not allowed:
                raise _Refused(f"invalid URL escape {go_quote(written)}")
            at += 3
            continue
        if not _HOST.match(char):
            raise _Refused(f"invalid character {go_quote(char)} in host name")
        at += 1
    return unquote_to_bytes(host).decode("utf-8", "replace")


def _url(text: str) -> Value:
    spend_work(len(text))
    try:
        parse(text)
        return parse(text, request=False)
    except _Refused as wrong:
        return Fault(f"URL parse error during conversion from string: {wrong}")


def refusal(text: str) -> str:
    """Return Go's error for a text that is not a request URL, or "".

    Raise Cancelled if the time budget is exhausted.
    """
    spend_work(len(text) // 2)
    try:
        parse(text)
    except _Refused as wrong:
        return str(wrong)
    return ""


def _split_port(host: str) -> tuple[str, str]:
    spend_copy(host)
    colon = host.rfind(":")
    port = ""
    if colon >= 0 and _PORT.match(host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _escaped_path(url: Url) -> Value:
    spend_text(len(url.path))
    spend_work(len(url.path) // 2)
    return url.escaped()


def _query(url: Url) -> Value:
    found: dict[str, list[str]] = {}
    spend_text(10 * len(url.query))
    for pair in url.query.split("&"):
        if ";" in pair or not pair:
            continue
        key, _, value = pair.partition("=")
        if _BAD_ESCAPE.search(key) or _BAD_ESCAPE.search(value):
            continue
        texts = [unquote_to_bytes(part.replace("+", " ")).decode("utf-8", "replace") for part in (key, value)]
        found.setdefault(texts[0], []).append(texts[1])
    made = Map()
    for name, values in found.items():
        made.set(name, values)
    return made


LIBRARY = Library(
    "kubernetes.urls",
    (
        row("url", "string_to_url", "string -> url", _url, "url('https://a/b').getHost() == 'a'", cost=COPY),
        row("getScheme", "url_get_scheme", ".url -> string", lambda url: url.scheme, "url('/path').getScheme() == ''"),
        row("getHost", "url_get_host", ".url -> string", lambda url: url.host,
            "url('https://[::1]:80/').getHost() == '[::1]:80'"),
        row("getHostname", "url_get_hostname", ".url -> string", lambda url: _split_port(url.host)[0],
            "url('https://[::1]:80/').getHostname() == '::1'"),
        row("getPort", "url_get_port", ".url -> string", lambda url: _split_port(url.host)[1],
            "url('https://example.com:80/').getPort() == '80'"),
        row("getEscapedPath", "url_get_escaped_path", ".url -> string", _escaped_path,
            "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'"),
        row("getQuery", "url_get_query", ".url -> map(string, list(string))", _query,
            "url('https://a/?k=1&k=2').getQuery() == {'k': ['1', '2']}"),
        row("isURL", "is_url_string", "string -> bool", lambda text: not refusal(text), "isURL('https://a:80/')",
            "!isURL('../relative')"),
    ),
)  # fmt: skip
