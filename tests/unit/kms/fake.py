"""A KMS plug-in in memory, with the interface for providers."""

import asyncio
from collections.abc import Mapping
from typing import Any

from apiext.kms.plugin import PluginError
from tests.support.kms_plugin import NOTE, message, turned

NOT_FOUND, UNAVAILABLE = 5, 14


class FakePlugin:
    """A plug-in that responds immediately, unless ``gate`` is closed.

    Calls raise ``fault``. Responses have the fields ``changed``.
    """

    def __init__(self, key_id: str = "key-1") -> None:
        self.timeout = 3.0
        self.key_id = key_id
        self.calls: list[tuple[str, str]] = []
        self.fault: PluginError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed: dict[str, dict[str, Any]] = {}
        self.closed = False
        self.unknown: set[str] = set()  # keys that it has lost

    def count(self, method: str) -> int:
        return sum(called == method for called, _ in self.calls)

    def die(self) -> None:
        """Fail all calls, as if there were no socket."""
        self.fault = PluginError(UNAVAILABLE, "gone", reached=False)

    async def status(self) -> Any:
        return await self._answer("Status", "", version="v2", healthz="ok", key_id=self.key_id)

    async def encrypt(self, uid: str, plain: bytes) -> Any:
        note = {NOTE: b"by " + self.key_id.encode()}
        sealed = turned(self.key_id, plain)
        return await self._answer("Encrypt", uid, ciphertext=sealed, key_id=self.key_id, annotations=note)

    async def decrypt(self, uid: str, source: bytes, key_id: str, annotations: Mapping[str, bytes]) -> bytes:
        assert annotations[NOTE] == b"by " + key_id.encode()
        answer = await self._answer("Decrypt", uid, plaintext=turned(key_id, source))
        if key_id in self.unknown:
            raise PluginError(NOT_FOUND, f"no key {key_id}", reached=True)
        return bytes(answer.plaintext)

    async def close(self) -> None:
        self.closed = True

    async def _answer(self, method: str, uid: str, **fields: Any) -> Any:
        self.calls.append((method, uid))
        try:
            async with asyncio.timeout(self.timeout):
                await self.gate.wait()
        except TimeoutError as error:
            raise PluginError(4, "context deadline exceeded", reached=False) from error
        if self.fault is not None:
            raise self.fault
        return message(f"{method}Response", **fields | self.changed.get(method, {}))
