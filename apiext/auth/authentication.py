"""Authentication: bearer tokens, client certificates, and anonymous requests.

See AUT-001, AUT-002.
"""

import hashlib
import hmac
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from apiext.auth.bound_objects import BadToken, Unbound
from apiext.auth.tokens import Tokens
from apiext.auth.user import CREDENTIAL_ID, REFUSED, SUPERUSER, User, authenticated, proven
from apiext.system.certificates import read_certificate, subject_of

UID = "1.3.6.1.4.1.57683.2"
"""Object identifier of the subject attribute that contains a user's uid (upstream: AllowParsingUserUIDFromCertAuth)."""


class Authenticator(Protocol):
    """Authenticates requests; ``uses_credentials`` is false if all requests have the same user."""

    uses_credentials: bool

    def authenticate(self, authorization: str, certificate_user: User | None) -> User | None:
        """Return the user; None without a credential.

        Raises BadCredential for an invalid credential. ``authorization`` is the header's value, empty if it is absent;
        ``certificate_user`` is the user of the client certificate.
        """


class BadCredential(Exception):
    """An invalid credential. The server responds with 401, even if it allows anonymous requests."""


class UnconfirmedCredential(BadCredential):
    """A token that is invalid by the cached objects, which may be older than the store.

    The caller retries after ``await fresh()``. Upstream reads the API instead.
    """

    def __init__(self, fresh: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.fresh = fresh


class NoAuthentication:
    """Authenticates every request as the superuser, for ``--insecure``."""

    uses_credentials = False

    def authenticate(self, authorization: str, certificate_user: User | None) -> User | None:
        """Return the superuser, with or without a credential."""
        return SUPERUSER


def bearer_token(authorization: str) -> str:
    """Return the bearer token of an Authorization header, or an empty string.

    Ignore text after the token.
    """
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"


def has_extra_space(authorization: str) -> bool:
    """Report whether ``bearer_token`` ignores a token because of a second space before it."""
    scheme, *rest = authorization.strip().split(" ")
    return len(rest) == 2 and not rest[0] and scheme.lower() == "bearer"


class Credentials:
    """Static tokens, tokens of service accounts, and client certificates.

    Static tokens are looked up by a keyed digest, so that the time of a look-up reveals nothing about a token.
    """

    uses_credentials = True

    def __init__(self, tokens: Mapping[str, User], accounts: Tokens | None = None) -> None:
        self._key = secrets.token_bytes(32)
        self._accounts = accounts
        self._users = {self._digest(token): user for token, user in tokens.items()}

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode("utf-8", "surrogateescape"), hashlib.sha256)

    def authenticate(self, authorization: str, certificate_user: User | None) -> User | None:
        """Return the user of the client certificate or else of the bearer token.

        Return None if the request has neither. Raises BadCredential for an invalid token, and for an invalid
        certificate without a token. The error is an UnconfirmedCredential if a token is invalid only by the cached
        objects.
        """
        if certificate_user is not None and certificate_user is not REFUSED:
            return certificate_user
        token = bearer_token(authorization)
        if not token:
            if certificate_user is REFUSED:
                raise BadCredential
            return None
        user = self._users.get(self._digest(token))
        if user is not None:
            return user
        try:
            found = self._accounts.user(token) if self._accounts is not None else None
        except Unbound as error:
            assert self._accounts is not None
            raise UnconfirmedCredential(self._accounts.fresh) from error
        except BadToken as error:
            raise BadCredential from error
        if found is None:
            raise BadCredential
        return found[0]


class TokenFileError(ValueError):
    """A line of the token file that is not ``token,user,uid[,"group1,group2"]``."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"token file, line {line}: {text}")
        self.line = line
        self.text = text


def parse_token_file(lines: Iterable[str]) -> dict[str, User]:
    """Parse upstream's CSV format; return token → user.

    The columns are token, user, uid, and an optional column of groups, such as ``"group1,group2"``. As upstream, skip
    empty lines and lines with an empty token. Raise TokenFileError for an invalid line.
    """
    users: dict[str, User] = {}
    for number, record in _records(lines):
        if not record or not any(record):
            continue
        if len(record) < 3:
            raise TokenFileError(number, f"expected at least 3 columns, found {len(record)}")
        token, name, uid = (field.strip() for field in record[:3])
        if not token:
            continue
        groups = tuple(group.strip() for group in record[3].split(",")) if len(record) > 3 and record[3] else ()
        users[token] = authenticated(name, groups, uid)
    return users


def _records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    import csv  # imported only if a token file is configured (decision 36)

    reader = csv.reader(lines, skipinitialspace=True)
    number = 0
    try:
        for number, record in enumerate(reader, start=1):
            yield number, record
    except csv.Error as error:
        raise TokenFileError(number + 1, str(error)) from error


def read_token_file(path: Path) -> dict[str, User]:
    """Read a token file; return token → user. Raises OSError and TokenFileError."""
    with path.open(encoding="utf-8", newline="") as file:
        return parse_token_file(file)


class Holder(Struct, frozen=True):
    """The user of a connection's client certificate, and whether the client is a trusted proxy.

    ``user`` is None without a certificate, or if the certificate names no user. ``user`` is REFUSED if the certificate
    is invalid as a credential.
    """

    user: User | None
    is_proxy: bool


REFUSED_HOLDER = Holder(REFUSED, False)


def user_of_certificate(der: bytes) -> User | None:
    """Return the user that a verified client certificate names: CN is the user, each O a group.

    Return None without a CN. Return REFUSED if a uid in the certificate is empty or not a string, or if there are
    several uids. Raises ValueError for a malformed certificate.
    """
    # this import takes 40 ms, so it happens at the first client with a certificate, not at the start
    from cryptography.x509 import ObjectIdentifier
    from cryptography.x509.oid import NameOID

    subject = subject_of(read_certificate(der))
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not names[-1].value:
        return None
    uids = [entry.value for entry in subject.get_attributes_for_oid(ObjectIdentifier(UID))]
    if len(uids) > 1 or not all(isinstance(uid, str) and uid for uid in uids):
        return REFUSED
    groups = tuple(str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    credential = (CREDENTIAL_ID, (f"X509SHA256={hashlib.sha256(der).hexdigest()}",))
    uid = str(uids[0]) if uids else ""
    return proven(User(str(names[-1].value), groups, uid, (credential,)))


def verified_chain(connection: ssl.SSLObject) -> list[bytes]:
    """Return the verified certificates (DER) of a client, its own certificate first.

    The list is empty if the client sent no certificate. A resumed TLS session has only the client's own certificate.
    """
    own = connection.getpeercert(True)
    if own is None:
        return []
    found: Any = connection
    if hasattr(found, "get_verified_chain"):
        return list(found.get_verified_chain()) or [own]
    der = 2  # OpenSSL's constant for the encoding; Python has no name for it before 3.13
    return [certificate.public_bytes(der) for certificate in found._sslobj.get_verified_chain() or ()] or [own]


def validity(chain: Iterable[bytes]) -> tuple[float, float]:
    """Return the first and the last Unix time at which all certificates of a chain are valid.

    Raises ValueError for a malformed certificate.
    """
    found = [read_certificate(der) for der in chain]
    begins = (certificate.not_valid_before_utc.timestamp() for certificate in found)
    return max(begins), min(certificate.not_valid_after_utc.timestamp() for certificate in found)
