"""Host names: validation as in Go's URLs, their form in a URL, and their form in DNS."""

import re
import stringprep
import unicodedata
from urllib.parse import quote

from apiext.text.quotes import go_quote
from apiext.webhooks.errors import BadTarget

_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
# characters that Go rejects in a host, and characters that would end the host in a URL
_NO_HOST = re.compile(r"[ \\^`{|}%\[:/?#@]")
_SHOWN = "".join(map(chr, range(0x21, 0x7F)))
_IN_DNS = re.compile(r"[a-z0-9-]*").fullmatch
_LONGEST = 63  # characters of a label


def check(host: str, port: int) -> None:
    """Raise BadTarget for a service whose host is invalid in a URL of a Go client.

    Upstream: DefaultServerURL.
    """
    base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    tried = f"parse {go_quote(f'http://{base}')}: "
    if _CONTROL.search(host):
        raise BadTarget(f"{tried}net/url: invalid control character in URL", 500)
    if bad := _BAD_ESCAPE.search(base):
        raise BadTarget(f"{tried}invalid URL escape {go_quote(bad.group())}", 500)
    if _NO_HOST.search(host):
        raise BadTarget(f"host must be a URL or a host:port pair: {go_quote(base)}", 500)


def shown(authority: str) -> str:
    """Return a host, or host and port, as in a URL, with percent-encoded non-ASCII characters."""
    return authority if authority.isascii() else quote(authority, safe=_SHOWN)


def in_dns(host: str) -> str:
    """Return the DNS name of a host (UTS 46, non-transitional).

    Return the host unchanged if it is ASCII, or if it has no DNS name.
    """
    if host.isascii():
        return host
    kept = "".join(char for char in host.lower() if not stringprep.in_table_b1(char))
    labels = [_label(label) for label in unicodedata.normalize("NFKC", kept).replace("\u3002", ".").split(".")]
    return ".".join(map(str, labels)) if any(labels) and None not in labels else host


def _label(label: str) -> str | None:
    """Return the ASCII form of one label, or None if the label has no ASCII form."""
    plain = "".join(char for char in label if char.isascii())
    if not _IN_DNS(plain) or not label.isprintable():
        return None
    made = plain if plain == label else f"xn--{label.encode('punycode').decode()}"
    return made if len(made) <= _LONGEST else None
