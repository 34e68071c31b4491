"""An encoded document with its ETag for conditional requests."""

import hashlib
from collections.abc import Iterable

from msgspec import Struct


class Tagged(Struct, frozen=True):
    """An encoded document and its quoted ETag.

    The document is a list of parts, since documents share parts.
    """

    parts: tuple[bytes, ...]
    etag: str

    @property
    def body(self) -> bytes:
        """The complete document."""
        return b"".join(self.parts)


def etag(texts: Iterable[bytes]) -> str:
    """Return the quoted SHA-512 of the concatenated texts, in upper-case hex (DIS-107, OAS-001)."""
    digest = hashlib.sha512()
    for text in texts:
        digest.update(text)
    return f'"{digest.hexdigest().upper()}"'


def separated(members: Iterable[bytes]) -> list[bytes]:
    """Return the members with commas between them.

    A member is encoded JSON; empty members are skipped.
    """
    found: list[bytes] = []
    for member in members:
        if member:
            found += (b",", member) if found else (member,)
    return found


def joined(members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the members of a JSON object without its braces.

    ``members`` are pairs of name and encoded value.
    """
    return b",".join(b'"%b":%b' % (name.encode(), value) for name, value in members)
