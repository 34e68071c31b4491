"""Tokens of service accounts: signed JSON web tokens that name an account, an audience and an end (clients.md §10)."""

import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from apiext import limits
from apiext.auth.certificates import write_private
from apiext.auth.user import ACCOUNT_PREFIX, CREDENTIAL_ID, User, service_account

_CLAIM = "kubernetes.io"
_PART = 32  # bytes of each half of an ES256 signature
_PARTS = 3

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Account:
    """A service account as tokens name it."""

    namespace: str
    name: str
    uid: str


class Tokens:
    """Makes tokens and recognises its own; the key is read, or made, when it is first needed.

    ``exists(account)`` tells whether an account is still there: with it go its tokens.
    """

    def __init__(
        self,
        key_file: Path,
        issuer: str,
        audiences: Sequence[str] = (),
        exists: Callable[[Account], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.audiences = tuple(audiences) or (issuer,)
        self._file = key_file
        self._issuer = issuer
        self._exists = exists
        self._clock = clock
        self._key: Key | None = None
        self._known: dict[bytes, dict[str, Any]] = {}  # claims of tokens whose signature was right, by digest

    def issue(self, account: Account, seconds: int, audiences: Sequence[str] = ()) -> tuple[str, float]:
        """Return a token and when it ends (Unix time)."""
        now = int(self._clock())
        claims = {
            "aud": list(audiences) or list(self.audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self._issuer,
            "jti": str(uuid4()),
            _CLAIM: {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
            "nbf": now,
            "sub": f"{ACCOUNT_PREFIX}{account.namespace}:{account.name}",
        }
        head = {"alg": _algorithm(self._signer()), "kid": self._key_id()}
        text = b".".join(map(_encoded, (orjson.dumps(head), orjson.dumps(claims))))
        return (text + b"." + _encoded(self._sign(text))).decode(), float(now + seconds)

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
        self._signer()

    def prepare(self) -> None:
        """Make the key if there is none; raises OSError and ValueError."""
        self._signer()

    # --- signatures ---

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
            head, claims = (orjson.loads(_decoded(part)) for part in signed.split(b"."))
            if head.get("alg") != _algorithm(self._signer()) or not self._is_signed(signed, _decoded(signature)):
                return None
            if claims.get("iss") != self._issuer:
                return None
        except (ValueError, AttributeError, binascii.Error):
            return None
        if len(self._known) >= limits.TOKENS_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[digest] = claims
        found: dict[str, Any] = claims
        return found

    def _signer(self) -> Key:
        if self._key is None:
            if not self._file.exists():
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(self._file, _new_key())
            found = serialization.load_pem_private_key(self._file.read_bytes(), None)
            if not isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
                raise ValueError(f"{self._file}: tokens are signed with an EC or RSA key")
            self._key = found
        return self._key

    def _key_id(self) -> str:
        raw = (
            self._signer()
            .public_key()
            .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        return _encoded(hashlib.sha256(raw).digest()).decode()

    def _sign(self, text: bytes) -> bytes:
        key = self._signer()
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_PART) + s.to_bytes(_PART)

    def _is_signed(self, text: bytes, signature: bytes) -> bool:
        key = self._signer().public_key()
        try:
            if isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
            else:
                r, s = int.from_bytes(signature[:_PART]), int.from_bytes(signature[_PART:])
                key.verify(utils.encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True


def _algorithm(key: Key) -> str:
    return "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"


def _new_key() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _encoded(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
