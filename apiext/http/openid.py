"""Issuer and public keys of service account tokens, for servers that verify tokens.

See OpenID Connect Discovery 1.0.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import orjson
from msgspec import Struct

from apiext.auth.tokens import Tokens
from apiext.http import responses
from apiext.http.exchange import Reply
from apiext.http.negotiation import JSON
from apiext.meta import status

CONFIGURATION, KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
_KEYS_TYPE = "application/jwk-set+json"
_CACHED = ("Cache-Control", "public, max-age=3600")


class Issuer(Struct, frozen=True):
    """The published issuer of tokens.

    ``keys_url`` is the URL of its keys, by default a URL of this server. ``scheme`` is the scheme of this server's URL.
    """

    tokens: Tokens
    keys_url: str
    scheme: str

    @property
    def is_published(self) -> bool:
        """Report whether the issuer is an https URL without query and fragment.

        Upstream publishes only these.
        """
        try:
            parts = urlsplit(self.tokens.issuer)
        except ValueError:
            return False
        return parts.scheme == "https" and not parts.query and not parts.fragment

    def shown(self, path: str, host: str) -> Reply | None:
        """Return the response with the configuration or the keys for a request to ``host``.

        Return None for other paths, and if the issuer is not published. Raise a 404 for a path below CONFIGURATION or
        KEYS. The response with the configuration is a 400 instead if ``host`` is malformed.
        """
        if not self.is_published:
            return None
        if path.startswith((f"{CONFIGURATION}/", f"{KEYS}/")):
            raise status.resource_not_found()
        if path == KEYS:
            return _shown({"keys": [key.web_key() for key in self.tokens.verifiers]}, _KEYS_TYPE)
        if path != CONFIGURATION:
            return None
        if not responses.is_host(host):
            return responses.bad_host()
        configuration: Mapping[str, str | Sequence[str]] = {
            "issuer": self.tokens.issuer,
            "jwks_uri": self.keys_url or f"{self.scheme}://{host}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({key.algorithm for key in self.tokens.verifiers}),
        }
        return _shown(configuration, JSON)


def _shown(document: Mapping[str, object], content_type: str) -> Reply:
    return Reply(200, content_type, (orjson.dumps(document),), [_CACHED])
