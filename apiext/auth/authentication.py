"""Authentication: bearer tokens, client certificates, and anonymous requests (AUT-001, AUT-002)."""

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
"""Subject attribute of a user's uid in a certificate (upstream: AllowParsingUserUIDFromCertAuth)."""


class Authenticator(Protocol):
    """Authenticates requests; ``uses_credentials`` is false if all requests have the same user."""

    uses_credentials: bool

    def authenticate(self, authorization: str, certificate_user: User | None) -> User | None:
        """Return the user; None without a credential. Raises BadCredential for an invalid one.

        ``authorization`` is the header's value, empty if it is absent; ``certificate_user`` is that of the connection.
        """


class BadCredential(Exception):
    """A sent credential is not valid: 401, even if anonymous requests are allowed."""


class UnconfirmedCredential(BadCredential):
    """A credential that the cache cannot confirm: retry after ``await fresh()`` (upstream reads the API)."""

    def __init__(self, fresh: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.fresh = fresh


class NoAuthentication:
    """Authenticates every request as the superuser: ``--insecure``."""

    uses_credentials = False

    def authenticate(self, authorization: str, certificate_user: User | None) -> User | None:
        """Return the superuser, with or without a credential."""
        return SUPERUSER


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header, empty if it has none; text after the token is ignored."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"


def has_extra_space(authorization: str) -> bool:
    """Report whether a token is ignored because of a second space before it."""
    scheme, *rest = authorization.strip().split(" ")
    return len(rest) == 2 and not rest[0] and scheme.lower() == "bearer"


class Credentials:
    """Static tokens, tokens of service accounts, and client certificates.

    Tokens are stored and found by a keyed digest, so that the time of a look-up reveals nothing about a token.
    """

    uses_credentials = True

    def __init__(self, tokens: Mapping[str, User], accounts: Tokens | None = None) -> None:
        self._key = secrets.token_bytes(32)
        self._accounts = accounts
        self._users = {self._digest(token): user for token, user in tokens.items()}

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode("utf-8", "surrogateescape"), hashlib.sha256)

    def authenticate(self, authorization: str, certificate_user: User | None) -> User | None:
        """Return the user of the certificate, else of the bearer token; None without either."""
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
    """Parse upstream's CSV into users by token: token, user, uid, and optionally quoted groups.

    Empty lines and lines with an empty token are skipped, as upstream does. Raises TokenFileError.
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
    import csv  # imported only with a token file (decision 36)

    reader = csv.reader(lines, skipinitialspace=True)
    number = 0
    try:
        for number, record in enumerate(reader, start=1):
            yield number, record
    except csv.Error as error:
        raise TokenFileError(number + 1, str(error)) from error


def read_token_file(path: Path) -> dict[str, User]:
    """Return the users by token of a file; raises OSError and TokenFileError."""
    with path.open(encoding="utf-8", newline="") as file:
        return parse_token_file(file)


class Holder(Struct, frozen=True):
    """The sender of a connection's certificate: the named user, and whether it is a trusted proxy."""

    user: User | None
    is_proxy: bool


REFUSED_HOLDER = Holder(REFUSED, False)


def user_of_certificate(der: bytes) -> User | None:
    """Return the user that a verified client certificate names: CN is the user, each O a group; None without a CN.

    Return REFUSED if its uid is empty or no string, or if it has several. Raises ValueError for a malformed
    certificate.
    """
    # takes 40 ms, so it is imported for the first client with a certificate
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
    """Return the verified certificates (DER) of a client, the client's own first; none if it sent none.

    A resumed session has only the client's own.
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
    """Return first and last time (Unix) at which all certificates of a chain are valid; raise ValueError."""
    found = [read_certificate(der) for der in chain]
    begins = (certificate.not_valid_before_utc.timestamp() for certificate in found)
    return max(begins), min(certificate.not_valid_after_utc.timestamp() for certificate in found)
