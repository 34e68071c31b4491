"""The data of the configmap ``kube-system/extension-apiserver-authentication``.

Aggregated API servers read from this configmap the CAs that sign the certificates of clients and of authenticating
proxies. Upstream: pkg/controlplane/controller/clusterauthenticationtrust.
"""

import json
from collections.abc import Mapping
from datetime import timedelta

from apiext.config import ProxyConfig

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
CLIENT_CA, PROXY_CA = "client-ca-file", "requestheader-client-ca-file"
# Upstream keeps a certificate for this time after its expiry, since clocks differ.
SLACK = timedelta(minutes=5)
_CA_FILES = (CLIENT_CA, PROXY_CA)
_SETTINGS: Mapping[str, str] = {  # key → field of ProxyConfig
    "requestheader-allowed-names": "allowed_names",
    "requestheader-extra-headers-prefix": "extra_prefixes",
    "requestheader-group-headers": "group_headers",
    "requestheader-uid-headers": "uid_headers",
    "requestheader-username-headers": "user_headers",
}


def trust_of(client_ca: str, proxy_ca: str, proxy: ProxyConfig) -> dict[str, str]:
    """Return the data for this server. ``client_ca`` and ``proxy_ca`` are PEM texts, or "".

    Without a CA for proxies, the data has no other settings of proxies.
    """
    found = {CLIENT_CA: client_ca} if client_ca else {}
    if proxy_ca:
        found[PROXY_CA] = proxy_ca
        found |= {key: _json(getattr(proxy, field)) for key, field in _SETTINGS.items()}
    return found


def merged(stored: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Add the data of this server to stored data, which other servers may have written.

    As in upstream, drop expired certificates, and keys that ``trust_of`` does not return. If no CA for proxies remains,
    also drop the other settings of proxies. Raise ValueError or TypeError if the stored data is invalid.
    """
    data = {}
    for key in sorted({*stored, *own}):
        if key in _CA_FILES:
            text = _certificates(stored.get(key, ""), own.get(key, ""))
        elif key in _SETTINGS:
            lists = (json.loads(text) for text in (stored.get(key), own.get(key)) if text)
            text = _json(tuple(dict.fromkeys(value for values in lists for value in values)))
        else:
            continue
        if text:
            data[key] = text
    if PROXY_CA not in data:
        data = {key: text for key, text in data.items() if key == CLIENT_CA}
    return data


def _certificates(*texts: str) -> str:
    """Return the certificates in PEM texts, each once, without expired ones.

    A certificate counts as expired if it expired more than SLACK ago.
    """
    from cryptography.hazmat.primitives.serialization import Encoding  # not needed without TLS; it takes 40 ms

    from apiext.auth.serving import now
    from apiext.system.certificates import read_certificates, unwarned

    found = [it for text in texts if text for it in read_certificates(text.encode())]
    with unwarned():
        kept = dict.fromkeys(it.public_bytes(Encoding.PEM) for it in found if it.not_valid_after_utc > now() - SLACK)
    return b"".join(kept).decode()


def _json(values: tuple[str, ...]) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
