"""Tokens stored in secrets: valid as long as their secret and account exist.

Upstream: serviceaccount/legacy.go.
"""

import base64
from collections.abc import Mapping
from typing import Any

from apiext.auth.bound_objects import INVALID_SINCE, Account, BadToken, Find, Record, Unbound
from apiext.auth.user import ACCOUNT_PREFIX
from apiext.documents.encoding import json_kind
from apiext.text.quotes import go_quote

ISSUER = "kubernetes/serviceaccount"
TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"
_NAMESPACE, _SECRET, _ACCOUNT, _UID = (
    f"kubernetes.io/serviceaccount/{name}"
    for name in ("namespace", "secret.name", "service-account.name", "service-account.uid")
)
_CLAIMS = {"sub": "sub", _NAMESPACE: "namespace", _SECRET: "secretName", _ACCOUNT: "serviceAccountName",
           _UID: "serviceAccountUID"}  # fmt: skip
"""Claim → its name in the error for a missing claim, in the order of the checks."""


def claims_of(account: Account, secret: str) -> dict[str, str]:
    """Return the claims of a token that a secret stores."""
    return {
        "iss": ISSUER,
        _NAMESPACE: account.namespace,
        _SECRET: secret,
        _ACCOUNT: account.name,
        _UID: account.uid,
        "sub": f"{ACCOUNT_PREFIX}{account.namespace}:{account.name}",
    }


def account_of(claims: Mapping[str, Any], token: str, find: Find) -> tuple[Account, str, Record]:
    """Return the account of a token, the name of its secret, and the record of the secret.

    Raise BadToken.
    """
    account, secret = _named(claims)
    stored = find("secrets", account.namespace, secret)
    if stored is None or stored.deleted:
        raise Unbound("Token has been invalidated")
    if stored.token != base64.b64encode(token.encode()).decode():
        raise Unbound("Token does not match server's copy")
    found = find("serviceaccounts", account.namespace, account.name)
    if found is None:
        raise Unbound(f"serviceaccounts {go_quote(account.name)} not found")
    if found.deleted:
        raise Unbound(f"ServiceAccount {account.namespace}/{account.name} has been deleted")
    if found.uid != account.uid:
        raise Unbound(f"ServiceAccount UID ({found.uid}) does not match claim ({account.uid})")
    return account, secret, stored


def check_mark(account: Account, secret: str, stored: Record) -> None:
    """Raise Unbound if the secret of a token is marked as invalid."""
    if stored.invalid:
        raise Unbound(
            f"the token in secret {account.namespace}/{secret} for service account {account.namespace}/{account.name} "
            "has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or "
            f"remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        )


def _named(claims: Mapping[str, Any]) -> tuple[Account, str]:
    for claim in _CLAIMS:
        value = claims.get(claim)
        if value is not None and not isinstance(value, str):
            raise BadToken(f"json: cannot unmarshal {json_kind(value)} into Go value of type string")
    for claim, shown in _CLAIMS.items():
        if not claims.get(claim):
            raise BadToken(f"{shown} claim is missing")
    account = Account(claims[_NAMESPACE], claims[_ACCOUNT], claims[_UID])
    if claims["sub"] != f"{ACCOUNT_PREFIX}{account.namespace}:{account.name}":
        raise BadToken("sub claim is invalid")
    return account, claims[_SECRET]
