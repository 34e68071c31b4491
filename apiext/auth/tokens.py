"""Tokens of service accounts: signed JSON web tokens that name an account, an audience and an end (clients.md §10)."""

import binascii
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from apiext import limits
from apiext.auth.signing import Signer, Verifier, decoded, encoded, signer_of
from apiext.auth.user import ACCOUNT_PREFIX, CREDENTIAL_ID, User, service_account

_CLAIM = "kubernetes.io"
_PARTS = 3


@dataclass(frozen=True, slots=True)
class Account:
    """A service account as tokens name it."""

    namespace: str
    name: str
    uid: str


class Tokens:
    """Makes tokens and recognises its own; the key is read, or made, when it is first needed.

    The first of the ``issuers`` makes tokens, those of the others count, too; so do signatures of the ``former`` keys.
    ``exists(account)`` tells whether an account is still there: with it go its tokens.
    """

    def __init__(
        self,
        key_file: Path,
        issuers: Sequence[str],
        audiences: Sequence[str] = (),
        exists: Callable[[Account], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
        former: Sequence[Verifier] = (),
    ) -> None:
        self.audiences = tuple(audiences) or tuple(issuers)
        self.issuer = issuers[0]
        self._issuers = frozenset(issuers)
        self._former = former
        self._file = key_file
        self._exists = exists
        self._clock = clock
        self._signer: Signer | None = None
        self._known: dict[bytes, dict[str, Any]] = {}  # claims of tokens whose signature was right, by digest

    def issue(self, account: Account, seconds: int, audiences: Sequence[str] = ()) -> tuple[str, float]:
        """Return a token and when it ends (Unix time)."""
        now = int(self._clock())
        claims = {
            "aud": list(audiences) or list(self.audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid4()),
            _CLAIM: {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
            "nbf": now,
            "sub": f"{ACCOUNT_PREFIX}{account.namespace}:{account.name}",
        }
        signer = self.signer()
        head = {"alg": signer.algorithm, "kid": signer.key_id}
        text = b".".join(map(encoded, (orjson.dumps(head), orjson.dumps(claims))))
        return (text + b"." + encoded(signer.sign(text))).decode(), float(now + seconds)

    def user(self, token: str, audiences: Sequence[str] = ()) -> tuple[User, list[str]] | None:
        """Return whose token it is and for whom of the audiences (none: the server's own); None when it is no good."""
        claims = self._claims(token)
        if claims is None:
            return None
        try:
            if not claims["nbf"] <= self._clock() < claims["exp"]:
                return None
            meant = [audience for audience in audiences or self.audiences if audience in claims["aud"]]
            about = claims[_CLAIM]
            account = Account(about["namespace"], about["serviceaccount"]["name"], about["serviceaccount"]["uid"])
            extra = ((CREDENTIAL_ID, (f"JTI={claims['jti']}",)),)
        except (KeyError, TypeError):  # signed with our key by somebody who writes other claims
            return None
        if not meant or not self._exists(account):
            return None
        return replace(service_account(account.namespace, account.name, account.uid), extra=extra), meant

    def check(self) -> None:
        """Read the key, which must be there; raises OSError and ValueError."""
        self._file.stat()
        self.signer()

    def signer(self) -> Signer:
        """Return what signs, with a new key if there is none; raises OSError and ValueError."""
        if self._signer is None:
            self._signer = signer_of(self._file)
        return self._signer

    @property
    def verifiers(self) -> list[Verifier]:
        """The keys whose signatures count, each once: the former ones, and the one that signs."""
        return list({key.key_id: key for key in (*self._former, self.signer())}.values())

    def _is_signed(self, head: Any, signed: bytes, signature: bytes) -> bool:
        algorithm, key_id = head.get("alg"), head.get("kid")
        return any(
            key.algorithm == algorithm and key_id in (None, "", key.key_id) and key.is_signed(signed, signature)
            for key in self.verifiers
        )

    def _claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token of ours, None for any other text."""
        if token.count(".") != _PARTS - 1 or len(token) > limits.MAX_TOKEN or not token.isascii():
            return None
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        signed, _, signature = token.encode().rpartition(b".")
        try:
            head, claims = (orjson.loads(decoded(part)) for part in signed.split(b"."))
            if claims.get("iss") not in self._issuers or not self._is_signed(head, signed, decoded(signature)):
                return None
        except (ValueError, AttributeError, TypeError, binascii.Error):
            return None
        if len(self._known) >= limits.TOKENS_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[digest] = claims
        found: dict[str, Any] = claims
        return found
