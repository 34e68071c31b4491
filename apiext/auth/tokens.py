"""Tokens of service accounts: signed JSON web tokens.

A token names an account, an audience and an expiry.
"""

import asyncio
import binascii
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import orjson
from msgspec.structs import replace

from apiext.auth import limits, secret_tokens
from apiext.auth.base64url import decoded, encoded
from apiext.auth.bound_objects import BOUND, Account, BadToken, BoundObject, Find, Record, Unbound
from apiext.auth.user import ACCOUNT_PREFIX, CREDENTIAL_ID, User, service_account
from apiext.meta.time import parse
from apiext.text.quotes import go_quote

if TYPE_CHECKING:
    from apiext.auth.signing import Signer, Verifier

_CLAIM = "kubernetes.io"
_PARTS = 3
# allowed difference between clocks, in seconds (upstream: jwt.DefaultLeeway). Tokens that are not stored in a
# secret also stay valid for this time after the deletionTimestamp of their account or bound object.
_LEEWAY = 60
_DAY = 86400
_INVALIDATED = "service account token has been invalidated"


class Issued(NamedTuple):
    """A new token, its expiry (Unix time), and its credential id in audit events."""

    token: str
    until: float
    credential: str


class Tokens:
    """Issues and verifies tokens of service accounts.

    The signing key is read or created at its first use. New tokens have the first of the ``issuers``; tokens in secrets
    have secret_tokens.ISSUER. The server accepts tokens of all ``issuers``, and tokens signed with a ``former`` key. A
    token is invalid if ``find`` returns None for its account, for the object to which it is bound, or for the secret in
    which it is stored. A label of a secret has the date of its last use. ``used(namespace, name, uid)`` is called with
    the secret of a used token if this date is neither the current nor the next day. ``fresh()`` waits until ``find``
    has the state of the store; after the error Unbound, the caller may await it and retry once.
    """

    def __init__(
        self,
        key_file: Path,
        issuers: Sequence[str],
        audiences: Sequence[str] = (),
        find: Find = lambda resource, namespace, name: None,
        clock: Callable[[], float] = time.time,
        former: "Sequence[Verifier]" = (),
        longest: float = 0.0,
    ) -> None:
        self.audiences = tuple(audiences) or tuple(issuers)
        self.issuer = issuers[0]
        self._issuers = frozenset((*issuers, secret_tokens.ISSUER))
        self._former = former
        self._file = key_file
        self._find = find
        self._clock = clock
        self.longest = int(longest)  # longest life of a requested token in seconds; 0: no limit
        self._signer: Signer | None = None
        self.used: Callable[[str, str, str], None] = lambda namespace, name, uid: None
        self.fresh: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)
        self._known: dict[bytes, dict[str, Any]] = {}  # SHA-256 digest of a verified token → its claims

    def issue(
        self,
        account: Account,
        seconds: int,
        audiences: Sequence[str] = (),
        bound: Mapping[str, BoundObject] = MappingProxyType({}),
    ) -> Issued:
        """Issue a token.

        ``bound`` maps claims, such as ``pod``, to the objects to which the token is bound. This server accepts the
        token if ``audiences`` are empty, or include an audience of this server.
        """
        now = int(self._clock())
        objects = {
            claim: {"name": one.name, "uid": one.uid} if one.uid else {"name": one.name} for claim, one in bound.items()
        }
        claims = {
            "aud": list(audiences) or list(self.audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid4()),
            _CLAIM: {
                "namespace": account.namespace,
                **dict(sorted(objects.items())),
                "serviceaccount": {"name": account.name, "uid": account.uid},
            },
            "nbf": now,
            "sub": f"{ACCOUNT_PREFIX}{account.namespace}:{account.name}",
        }
        return Issued(self._signed(claims), float(now + seconds), _credential_of(claims))

    def secret_token(self, account: Account, secret: str) -> str:
        """Return a token to store in a secret.

        The token is valid as long as the secret and the account exist.
        """
        return self._signed(secret_tokens.claims_of(account, secret))

    def _signed(self, claims: Mapping[str, Any]) -> str:
        signer = self.signer()
        head = {"alg": signer.algorithm, "kid": signer.key_id}
        text = b".".join(map(encoded, (orjson.dumps(head), orjson.dumps(claims))))
        return (text + b"." + encoded(signer.sign(text))).decode()

    def user(self, token: str, audiences: Sequence[str] = ()) -> tuple[User, list[str]] | None:
        """Return the user of a token and the matching audiences.

        Empty ``audiences`` stand for those of the server. Return None for a text that is not a token of this server;
        raise BadToken for an invalid token of this server.
        """
        claims = self._claims(token)
        if claims is None:
            return None
        wanted, is_stored = audiences or self.audiences, claims["iss"] == secret_tokens.ISSUER
        try:
            given = _audiences(claims.get("aud", list(self.audiences)) if is_stored else claims["aud"])
            matching = [audience for audience in wanted if audience in given]
            if not matching:
                text = f"is invalid for the target audiences {_listed(wanted)}"
                raise BadToken(f"token audiences {_listed(given)} {text}")
            if is_stored:
                return self._user_by_secret(claims, token), matching
            _check_types(claims)
            self._check_times(claims)
            about = claims[_CLAIM]
            account = Account(about["namespace"], about["serviceaccount"]["name"], about["serviceaccount"]["uid"])
            extra = ((CREDENTIAL_ID, (_credential_of(claims),)), *_extra_of(about))
            self._check_account(account)
            self._check_bound_objects(account.namespace, about)
        except (KeyError, TypeError):  # another program has used the key to sign a token with other claims
            return None
        return replace(service_account(account.namespace, account.name, account.uid), extra=extra), matching

    def _user_by_secret(self, claims: Mapping[str, Any], token: str) -> User:
        account, secret, record = secret_tokens.account_of(claims, token, self._find)
        now = self._clock()
        # a label with the date of the next day is accepted, too, as in legacy.go: else two servers whose clocks differ
        # at midnight overwrite each other's label
        if record.used not in (_date(now), _date(now + _DAY)):
            self.used(account.namespace, secret, record.uid)
        secret_tokens.check_mark(account, secret, record)
        return service_account(account.namespace, account.name, account.uid)

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        """Compare the times of a token with the clock; ignore absent claims.

        Upstream: Claims.Validate of go-jose.
        """
        now = self._clock()
        begin, end, issued = (_seconds(claims.get(name)) for name in ("nbf", "exp", "iat"))
        if begin is not None and now + _LEEWAY < begin:
            raise BadToken("service account token is not valid yet")
        if end is not None and now - _LEEWAY > end:
            raise BadToken("service account token has expired")
        if issued is not None and now + _LEEWAY < issued:
            raise BadToken("service account token is issued in the future")

    def _check_account(self, account: Account) -> None:
        found = self._find("serviceaccounts", account.namespace, account.name)
        if found is None:
            raise Unbound(f"serviceaccounts {go_quote(account.name)} not found")
        if self._is_dead(found):
            raise Unbound(f"service account {account.namespace}/{account.name} has been deleted")
        if found.uid != account.uid:
            raise Unbound(f"service account UID ({found.uid}) does not match claim ({account.uid})")

    def _check_bound_objects(self, namespace: str, about: Mapping[str, Any]) -> None:
        """Check the object to which a token is bound; do not check the node of a bound pod."""
        for claim, resource in BOUND.items():
            bound = about.get(claim)
            if bound is None or (claim == "node" and about.get("pod") is not None):
                continue
            found = self._find(resource, "" if claim == "node" else namespace, bound["name"])
            if found is None or self._is_dead(found):
                raise Unbound(_INVALIDATED)
            if found.uid != bound["uid"]:
                text = f"does not match service account {claim} ref claim ({bound['uid']})"
                raise Unbound(f"{claim} UID ({found.uid}) {text}")

    def _is_dead(self, found: Record) -> bool:
        return bool(found.deleted) and parse(found.deleted).timestamp() < self._clock() - _LEEWAY

    def check(self) -> None:
        """Read the key, which must exist; raises OSError and ValueError."""
        self._file.stat()
        self.signer()

    def signer(self) -> "Signer":
        """Return the signer; create the key file if it does not exist.

        Raises OSError and ValueError.
        """
        if self._signer is None:
            from apiext.auth.signing import signer_of  # imports cryptography, which takes 40 ms

            self._signer = signer_of(self._file)
        return self._signer

    @property
    def verifiers(self) -> "list[Verifier]":
        """The keys that verify tokens, each once: the former keys and the signing key."""
        return list({key.key_id: key for key in (*self._former, self.signer())}.values())

    def _check_signature(self, head: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        keys = [key for key in self.verifiers if head.get("kid") in (None, "", key.key_id)]
        if not keys:
            raise BadToken("invalid signature, no keys found")
        if not any(key.algorithm == head.get("alg") and key.is_signed(signed, signature) for key in keys):
            raise BadToken("go-jose/go-jose: error in cryptographic primitive")  # upstream's text

    def _claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token; None for a text that is not a token of this server.

        Raises BadToken for an invalid signature.
        """
        if token.count(".") != _PARTS - 1 or "=" in token or len(token) > limits.MAX_TOKEN or not token.isascii():
            return None
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        signed, _, rest = token.encode().rpartition(b".")
        try:
            head, claims = (orjson.loads(decoded(part)) for part in signed.split(b"."))
            signature = decoded(rest)
            if type(head) is not dict or claims.get("iss") not in self._issuers:
                return None
        except (ValueError, AttributeError, TypeError, binascii.Error):
            return None
        self._check_signature(head, signed, signature)
        if len(self._known) >= limits.TOKENS_CACHED:
            del self._known[next(iter(self._known))]
        self._known[digest] = claims
        found: dict[str, Any] = claims
        return found


def _check_types(claims: Mapping[str, Any]) -> None:
    """Raise KeyError for a missing claim, TypeError for a claim of an unexpected type.

    Other programs that have a signing key can sign any claims, but later code relies on these types.
    """
    about = claims[_CLAIM]
    bound: Mapping[str, Any] = about if type(about) is dict else {}
    objects = [about["serviceaccount"], *(bound[claim] for claim in BOUND if bound.get(claim) is not None)]
    texts = [claims["jti"], claims.get("sub", ""), about["namespace"], *(one["name"] for one in objects)]
    node = bound.get("node")
    texts += [*(one["uid"] for one in objects if one is not node), node.get("uid", "") if node is not None else ""]
    if not all(type(text) is str for text in texts):
        raise TypeError("a claim that is a string has another type")


def _extra_of(about: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str]]]:
    """Yield the extra attributes of the user that name the pod and the node in the claims."""
    for claim in ("node", "pod"):
        bound: Mapping[str, str] = about.get(claim) or {}
        for word in ("name", "uid"):
            if bound.get(word):
                yield f"authentication.kubernetes.io/{claim}-{word}", (bound[word],)


def _credential_of(claims: Mapping[str, Any]) -> str:
    return f"JTI={claims['jti']}"


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def _seconds(claim: Any) -> int | None:
    """Return the Unix time of a claim in whole seconds, None for an absent one.

    Raises TypeError for another type.
    """
    if claim is not None and (not isinstance(claim, int | float) or isinstance(claim, bool)):
        raise TypeError("NumericDate")
    return None if claim is None else int(claim)


def _audiences(claim: Any) -> list[str]:
    """Return the audiences of a token; a single audience may be a string.

    Raises TypeError for an invalid claim.
    """
    found = [claim] if isinstance(claim, str) else claim
    if not isinstance(found, list) or not all(isinstance(audience, str) for audience in found):
        raise TypeError("aud")
    return found


def _listed(audiences: Sequence[str]) -> str:
    """Format audiences as Go prints a list of strings."""
    return f"[{' '.join(map(go_quote, audiences))}]"
