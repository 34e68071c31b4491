"""A KMS plug-in for tests, with faults that tests set: a real gRPC server on a unix socket."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.shared import ROOT

SERVICE = "v2.KeyManagementService"
NOTE = "note.kms.example.com"


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    raw = (ROOT / "apiext" / "kms" / "pb" / "kms.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(file)
    return pool


POOL = _pool()


def message(name: str, **values: Any) -> Any:
    """Return a message of the plug-in's API, or an EncryptedObject."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"v2.{name}"))(**values)


def read(name: str, raw: bytes) -> Any:
    """Decode a message."""
    found = message(name)
    found.ParseFromString(raw)
    return found


def turned(key_id: str, data: bytes) -> bytes:
    """Encrypt or decrypt data with a key of the plug-in, by XOR (not secure)."""
    stream = b"".join(hashlib.sha256(b"%b %d" % (key_id.encode(), at)).digest() for at in range(len(data) // 32 + 1))
    return bytes(one ^ other for one, other in zip(data, stream, strict=False))


@dataclass
class Plugin:
    """A plug-in with settable faults; ``calls`` has the (method, uid) of each call.

    ``fault`` is the gRPC status and text of all calls, ``garbage`` the bytes of all responses, ``delay`` the seconds
    before each response; ``changed`` is method → fields that replace those of the response.
    """

    path: str
    key_id: str = "key-1"
    known: set[str] = field(default_factory=lambda: {"key-1", "key-2", "key-3"})
    healthz: str = "ok"
    version: str = "v2"
    fault: tuple[grpc.StatusCode, str] | None = None
    garbage: bytes | None = None
    delay: float = 0.0
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    _server: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """The ``endpoint`` in an EncryptionConfiguration."""
        return f"unix:///{self.path}" if self.path.startswith("@") else f"unix://{self.path}"

    def start(self) -> None:
        """Start to listen on the socket."""
        server = grpc.server(futures.ThreadPoolExecutor(8))
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(self._answerer(method))
            for method in ("Status", "Encrypt", "Decrypt")
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        where = f"unix-abstract:{self.path[1:]}" if self.path.startswith("@") else f"unix:{self.path}"
        server.add_insecure_port(where)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Stop the server and remove its socket."""
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None
        if not self.path.startswith("@"):
            Path(self.path).unlink(missing_ok=True)

    def count(self, method: str) -> int:
        """Return the number of calls of a method."""
        return sum(called == method for called, _ in self.calls)

    def _answerer(self, method: str) -> Any:
        def answer(raw: bytes, context: Any) -> bytes:
            request = read(f"{method}Request", raw)
            with self._lock:
                self.calls.append((method, getattr(request, "uid", "")))
            time.sleep(self.delay)
            if self.fault is not None:
                context.abort(*self.fault)
            if self.garbage is not None:
                return self.garbage
            fields = {**getattr(self, f"_{method.lower()}")(request, context), **self.changed.get(method, {})}
            return bytes(message(f"{method}Response", **fields).SerializeToString())

        return answer

    def _status(self, _request: Any, _context: Any) -> dict[str, Any]:
        return {"version": self.version, "healthz": self.healthz, "key_id": self.key_id}

    def _encrypt(self, request: Any, _context: Any) -> dict[str, Any]:
        sealed = turned(self.key_id, request.plaintext)
        return {"ciphertext": sealed, "key_id": self.key_id, "annotations": {NOTE: b"by " + self.key_id.encode()}}

    def _decrypt(self, request: Any, context: Any) -> dict[str, Any]:
        if request.key_id not in self.known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no key {request.key_id}")
        if request.annotations[NOTE] != b"by " + request.key_id.encode():
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not what was annotated")
        return {"plaintext": turned(request.key_id, request.ciphertext)}


@contextlib.contextmanager
def running_plugin(path: Path | str, **how: Any) -> Iterator[Plugin]:
    """Run a plug-in on a unix socket, with these fields of ``Plugin``."""
    plugin = Plugin(str(path), **how)
    plugin.start()
    try:
        yield plugin
    finally:
        plugin.stop()


def provider(plugin: Plugin, name: str = "p", **more: Any) -> dict[str, Any]:
    """Return the provider of an EncryptionConfiguration that uses this plug-in."""
    return {"kms": {"apiVersion": "v2", "name": name, "endpoint": plugin.endpoint, **more}}
