"""A document as sent: bytes in parts, and the ETag for conditional requests."""

import hashlib
from collections.abc import Iterable

from msgspec import Struct


class Tagged(Struct, frozen=True):
    """A document and its quoted ETag; several documents share parts, to save memory."""

    parts: tuple[bytes, ...]
    etag: str

    @property
    def body(self) -> bytes:
        """Return the document in one piece."""
        return b"".join(self.parts)


def etag(texts: Iterable[bytes]) -> str:
    """Return an ETag: quoted upper-case hex of the SHA-512 of the concatenated texts (DIS-107, OAS-001)."""
    digest = hashlib.sha512()
    for text in texts:
        digest.update(text)
    return f'"{digest.hexdigest().upper()}"'


def separated(members: Iterable[bytes]) -> list[bytes]:
    """Return encoded JSON members with commas between them; empty ones are skipped."""
    found: list[bytes] = []
    for member in members:
        if member:
            found += (b",", member) if found else (member,)
    return found


def joined(members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return named, encoded JSON values as the members of one object, without braces."""
    return b",".join(b'"%b":%b' % (name.encode(), value) for name, value in members)
