"""Flags of kube-apiserver about headers: for browsers, and for authenticating proxies.

See LIM-005, AUT-001.
"""

from collections.abc import Callable, Mapping, Sequence

from apiext.config import ConfigError, HeaderConfig, ProxyConfig
from apiext.meta.fields import aggregate

FLAGS: tuple[tuple[str, str, str, str], ...] = (
    (
        "cors-allowed-origins",
        "regular expressions of the origins whose pages may send requests; empty: no CORS",
        "",
        "A,B",
    ),
    ("strict-transport-security-directives", "value of the header Strict-Transport-Security, with TLS", "", "A,B"),
    ("goaway-chance", "accepted without effect: only HTTP/2 connections get a GOAWAY", "0", "0…0.02"),
    ("requestheader-client-ca-file", "CA of the proxies that name the user of a request in headers", "", "FILE"),
    (
        "requestheader-allowed-names",
        "allowed common names of proxies; empty: all certificates of --requestheader-client-ca-file",
        "",
        "A,B",
    ),
    ("requestheader-username-headers", "headers with the user's name: X-Remote-User", "", "A,B"),
    ("requestheader-uid-headers", "headers with the user's uid: X-Remote-Uid", "", "A,B"),
    ("requestheader-group-headers", "headers with the user's groups: X-Remote-Group", "", "A,B"),
    (
        "requestheader-extra-headers-prefix",
        "prefixes of headers with the user's extra attributes: X-Remote-Extra-",
        "",
        "A,B",
    ),
)
"""(name, help, default, metavar) of each flag."""

_HELP = (
    "List of allowed origins for CORS, comma separated. An allowed origin can be a regular expression to support "
    "subdomain matching. If this list is empty CORS will not be enabled. Please ensure each expression matches the "
    "entire hostname by anchoring to the start with '^' or including the '//' prefix, and by anchoring to the end with "
    "'$' or including the ':' port separator suffix. Examples of valid expressions are '//example\\.com(:|$)' and "
    "'^https://example\\.com(:|$)'"
)
_DIRECTIVES = (
    "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. "
    "see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
)
_MOST_GOAWAY = 0.02
_USUAL = {
    "requestheader-username-headers": "X-Remote-User",
    "requestheader-group-headers": "X-Remote-Group",
    "requestheader-extra-headers-prefix": "X-Remote-Extra-",
    "requestheader-uid-headers": "X-Remote-Uid",
}


def read(values: Mapping[str, str], warn: Callable[[str], None]) -> tuple[HeaderConfig, ProxyConfig]:
    """Parse the flags; raise ConfigError with all errors, mostly in upstream's words.

    If a list of proxy headers is not empty and lacks the usual header, such as X-Remote-User, ``warn`` is called. For
    the uid headers, this is an error.
    """
    lists = {name: _listed(values[name]) for name, *_ in FLAGS if name not in ("goaway-chance", _CA)}
    faults = [
        *_goaway(values["goaway-chance"]),
        *_directives(lists["strict-transport-security-directives"]),
        *_origins(lists["cors-allowed-origins"]),
        *_proxy(lists, warn),
    ]
    if faults:
        raise ConfigError(aggregate(faults))
    proxy = ProxyConfig(
        values[_CA],
        lists["requestheader-allowed-names"],
        lists["requestheader-username-headers"],
        lists["requestheader-uid-headers"],
        lists["requestheader-group-headers"],
        lists["requestheader-extra-headers-prefix"],
    )
    return HeaderConfig(lists["cors-allowed-origins"], lists["strict-transport-security-directives"]), proxy


_CA = "requestheader-client-ca-file"


def _listed(text: str) -> tuple[str, ...]:
    """Split a list as Go's flags do, which read the value as CSV and use only its first line."""
    if not text:
        return ()
    import csv  # imported only if such a flag is set (decision 36)

    return tuple(next(csv.reader(text.splitlines()), []))


def _goaway(text: str) -> list[str]:
    try:
        chance = float(text)
    except ValueError:
        return [f"--goaway-chance {text}: expected a number"]
    fits = 0 <= chance <= _MOST_GOAWAY
    return [] if fits else ["--goaway-chance can not be less than 0 or greater than 0.02"]


def _directives(directives: tuple[str, ...]) -> list[str]:
    found = []
    for directive in directives:
        if not directive.strip():
            found.append("empty value in strict-transport-security-directives")
        elif directive not in ("includeSubDomains", "preload"):
            name = directive.partition("=")[0]
            if name != "max-age" or directive.count("=") != 1:
                found.append(_DIRECTIVES)
    return found


def _origins(origins: tuple[str, ...]) -> list[str]:
    if not origins:
        return []
    from apiext.schema import patterns

    found = []
    for origin in origins:
        if not origin:
            found.append(f"empty value in --cors-allowed-origins, help: {_HELP}")
        elif why := patterns.refusal(origin) or _unpinned(origin):
            found.append(f"--cors-allowed-origins has an invalid regular expression: {why}, help: {_HELP}")
    return found


def origin_matchers(origins: Sequence[str]) -> list[Callable[[str], bool]]:
    """Return a function for each pattern of --cors-allowed-origins.

    The function reports whether an origin matches the pattern.
    """
    if not origins:
        return []
    from apiext.schema import patterns  # imported only if such a flag is set (decision 36)

    return [patterns.searcher(origin) for origin in origins]


def _unpinned(origin: str) -> str:
    if ("^" in origin or "//" in origin) and ("$" in origin or ":" in origin):
        return ""
    return "regular expression does not pin to start/end of host in the origin header"


def _proxy(lists: Mapping[str, tuple[str, ...]], warn: Callable[[str], None]) -> list[str]:
    faults = [
        f'empty value in "{name}"'
        for name in (*_USUAL, "requestheader-allowed-names")
        if any(not header.strip() for header in lists[name])
    ]
    for name, usual in _USUAL.items():
        if not lists[name] or usual.lower() in {header.lower() for header in lists[name]}:
            continue
        text = f"--{name} is set without specifying the standard {usual} header"
        if usual == "X-Remote-Uid":
            faults.append(f"{text} - API aggregation will not work")
        else:
            warn(text)
    return faults
