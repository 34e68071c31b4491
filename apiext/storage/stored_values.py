"""Turn the stored values of a resource into entries, and encrypt objects for the store.

Stored values are decrypted and decoded. An Entry (store.py) is a cached object at one revision, with its JSON.
"""

import asyncio
from collections.abc import Callable, Sequence
from sys import intern

from apiext.storage import limits
from apiext.storage.encryption import (
    ENCRYPTED,
    NOT_ENCRYPTED,
    Decrypted,
    EncryptedEntry,
    Encryption,
    EncryptionError,
    MissingKey,
    Secret,
    decrypt_all,
)
from apiext.storage.store import Entry, NotEncrypted
from apiext.storage.values import Broken, entry_of, json_object, secret_of

Decoder = Callable[[bytes], bytes]
"""(stored value) → its JSON; raises ValueError if the value cannot be decoded."""


class StoredValues:
    """The decoder of the values of one resource, and their encryption if ``encryption`` is set.

    ``pending`` is key → JSON of an unfinished write. ``encrypted`` is key → (encrypted value, encryption key) of an
    unfinished write. So the watch events of these writes need neither decryption nor decoding. ``ahead`` is id() of a
    stored value → result of its decryption in a thread.
    """

    def __init__(self, prefix: str, decoder: Decoder | None) -> None:
        self.decode: Decoder = decoder or json_object
        self.encryption: Encryption | None = None
        self.encrypted: dict[str, tuple[bytes, Secret]] = {}
        self.ahead: dict[int, Decrypted] = {}
        self.pending: dict[str, bytes] = {}
        self._prefix = prefix

    def switch(self, encryption: Encryption | None) -> None:
        """Use another encryption configuration."""
        self.encryption = encryption
        self.ahead.clear()  # the old configuration has decrypted these values

    def entry_of(self, key: str, revision: int, value: bytes, cached: Entry | None) -> Entry:
        """Return ``cached`` if it has the revision and JSON of a stored value, else a new entry.

        Raise ValueError if the value cannot be decoded or decrypted.
        """
        if self.encryption is not None:
            return self.decrypted(self.encryption, key, revision, value, cached)
        if cached is not None and cached.revision == revision and cached.raw == value:
            return cached
        return entry_of(key, revision, value if self.pending.get(key) == value else self.decode(value))

    async def encrypt(self, encryption: Encryption, key: str, raw: bytes) -> bytes:
        """Encrypt an object, and record the value in ``encrypted``; raise NotEncrypted if it fails."""
        inline = len(raw) <= limits.ENCRYPT_INLINE
        path, secret = self._prefix + key, encryption.secret
        try:
            stored = encryption.encrypt(path, raw) if inline else await asyncio.to_thread(encryption.encrypt, path, raw)
        except EncryptionError as fault:
            raise NotEncrypted(str(fault)) from fault
        self.encrypted[key] = stored, secret
        return stored

    async def prepare(self, values: Sequence[tuple[str, bytes]]) -> None:
        """Call plug-ins to decrypt the data keys of values.

        Then decrypt the values in a thread if they are large.
        """
        if self.encryption is not None and self.encryption.waits:
            await self.encryption.fetch([value for _, value in values])
        await self.decrypt_ahead(values)

    async def decrypt_ahead(self, values: Sequence[tuple[str, bytes]]) -> None:
        """Decrypt values in a thread if their total size is large.

        Without this, ``entry_of`` would block the event loop.
        """
        encryption = self.encryption
        if encryption is None or sum(len(value) for _, value in values) <= limits.ENCRYPT_INLINE:
            return
        unknown = [it for it in values if it[0] not in self.encrypted or self.encrypted[it[0]][0] != it[1]]
        found = await asyncio.to_thread(decrypt_all, encryption, self._prefix, unknown, self.decode)
        self.ahead |= {id(one.value): one for one in found if encryption is self.encryption}

    def drop_ahead(self, value: bytes | None) -> None:
        """Drop the result of ``decrypt_ahead`` for a value; the caller needs no entry of this value."""
        if self.ahead:
            self.ahead.pop(id(value), None)

    def decrypted(self, encryption: Encryption, key: str, revision: int, value: bytes, cached: Entry | None) -> Entry:
        """Return the entry of an encrypted value as ``entry_of`` does. Raises ValueError."""
        written, raw = self.encrypted.get(key), self.pending.get(key)
        ahead = self.ahead.pop(id(value), None) if self.ahead else None
        if written is not None and raw is not None and written[0] == value:
            secret = written[1]
        elif ahead is not None and ahead.by is encryption:
            if ahead.fault is not None:
                raise ahead.fault
            raw, secret = ahead.raw, ahead.secret
        else:
            plain, secret = encryption.decrypt(self._prefix + key, value)
            raw = plain if raw == plain else self.decode(plain)
        if cached is not None and cached.revision == revision and cached.raw == raw:
            return cached
        namespace, _, name = key.rpartition("/")
        return EncryptedEntry(intern(namespace), name, revision, raw, secret=secret)

    def stale(self, entry: Entry) -> bool:
        """Report whether an entry is not encrypted with the current key; False without encryption.

        A write stores an object with a stale entry even if the object does not change.
        """
        return self.encryption is not None and secret_of(entry) != self.encryption.secret

    def broken(self, revision: int, value: bytes, error: ValueError, last: Entry | None = None) -> Broken:
        """Return the record of a value for which ``entry_of`` raised ``error``.

        ``last`` is the last good entry.
        """
        if isinstance(error, EncryptionError):
            return Broken(revision, str(error), last, undecryptable=True, lacking=isinstance(error, MissingKey))
        if self.encryption is None and value.startswith(ENCRYPTED):
            return Broken(revision, NOT_ENCRYPTED, last, undecryptable=True)
        return Broken(revision, str(error), last)
