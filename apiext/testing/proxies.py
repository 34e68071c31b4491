"""Bypass the proxies of the environment for loopback addresses.

Go never uses a proxy for these addresses, but many Python clients do.
"""

import ipaddress
import os
from urllib.parse import urlsplit


def bypass(url: str) -> dict[str, str]:
    """Return the environment variables with which clients reach a local server directly.

    Return an empty dict if the server is not local, or if clients already reach it directly.
    """
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
