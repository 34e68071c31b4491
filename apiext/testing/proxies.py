"""Bypass proxies of the environment: unlike Go's, many Python clients use them for loopback addresses, too."""

import ipaddress
import os
from urllib.parse import urlsplit


def bypass(url: str) -> dict[str, str]:
    """Return the variables with which clients reach a local server directly; empty if they do so already."""
    host = urlsplit(url).hostname or ""
    if not _is_loopback(host) or not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies_environment, proxy_bypass

    proxies = getproxies_environment()
    if not set(proxies) - {"no"} or proxy_bypass(host):
        return {}
    listed = ",".join(filter(None, (proxies.get("no"), host)))
    return {"NO_PROXY": listed, "no_proxy": listed}


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
