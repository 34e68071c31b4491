"""An https webhook for tests: it records the received reviews, and answers as configured."""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import signal
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import tls

Review = dict[str, Any]
Exchange = BaseHTTPRequestHandler
Answer = Callable[[Review], "Review | Raw"]
"""The request of a review → the response without its uid, or an action on the connection."""
START_WITHIN = 40.0


class Raw:
    """An answer that is not a review: ``act`` writes to the connection."""

    def __init__(self, act: Callable[[Exchange], None]) -> None:
        self.act = act


def allow(_: Review) -> Review:
    """Return the response that allows the request."""
    return {"allowed": True}


def deny(message: str = "", **status: Any) -> Answer:
    """Return the function that denies a request.

    ``status`` are fields of the Status in the response.
    """
    result = {**({"message": message} if message else {}), **status}
    return lambda _: {"allowed": False, **({"status": result} if result else {})}


def patch(*operations: dict[str, Any], **more: Any) -> Answer:
    """Return the function that changes the object by a JSON patch."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patch": encoded, "patchType": "JSONPatch", **more}


def page(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Raw:
    """Return an HTTP answer with this status and body."""

    def act(exchange: Exchange) -> None:
        exchange.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            exchange.send_header(name.replace("_", "-"), value)
        exchange.end_headers()
        exchange.wfile.write(body)

    return Raw(act)


def document(body: Any) -> Raw:
    """Return an answer with this document in place of a review."""
    return page(200, json.dumps(body).encode())


def reset(exchange: Exchange) -> None:
    """Reset the connection after half of an answer."""
    exchange.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"half":')
    exchange.wfile.flush()
    exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.close_connection = True


def silent(exchange: Exchange) -> None:
    """Close the connection without an answer."""
    exchange.close_connection = True


def endless(exchange: Exchange) -> None:
    """Send chunks until the client closes the connection."""
    exchange.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    block = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with contextlib.suppress(OSError):
        while True:
            exchange.wfile.write(block)
    exchange.close_connection = True


class Webhook:
    """A running webhook.

    Tests may change its answers at any time. ``answers`` is path → answer; ``answer`` is for all other paths.
    """

    def __init__(self, server: ThreadingHTTPServer, authority: tls.TestAuthority, version: str) -> None:
        self.server = server
        self.authority = authority
        self.version = version
        self.answer: Answer = allow
        self.answers: dict[str, Answer] = {}
        self.reviews: list[Review] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.released = threading.Event()

    @property
    def port(self) -> int:
        """The port of the webhook."""
        return int(self.server.server_address[1])

    def url(self, path: str = "/") -> str:
        """Return the URL of a path."""
        return f"https://127.0.0.1:{self.port}{path}"

    def client_config(self, path: str = "/") -> dict[str, Any]:
        """Return the clientConfig that calls this webhook."""
        return {"url": self.url(path), "caBundle": self.authority.bundle}

    def requests(self, path: str | None = None) -> list[Review]:
        """Return the requests of the recorded reviews, for all paths or for one path."""
        pairs = list(zip(self.paths, self.reviews, strict=True))
        return [review["request"] for seen, review in pairs if path is None or seen.split("?")[0] == path]

    def hang(self, _: Review) -> Raw:
        """Send no answer: hold the connection until ``released`` is set, for at most 60 seconds.

        ``running_webhook`` sets ``released`` at its end; a test may set it earlier.
        """
        return Raw(lambda _: (self.released.wait(60), None)[1])

    def forget(self) -> None:
        """Delete all recorded reviews, and reset the answers."""
        self.answer, self.answers = allow, {}
        self.reviews.clear()
        self.paths.clear()
        self.headers.clear()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # send head and body together
    webhook: Webhook

    def setup(self) -> None:
        super().setup()
        self.webhook.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        review = json.loads(body)
        hook = self.webhook
        hook.paths.append(self.path)
        hook.headers.append({name.lower(): value for name, value in self.headers.items()})
        hook.reviews.append(review)
        answer = hook.answers.get(self.path.split("?")[0], hook.answer)(review.get("request", {}))
        if isinstance(answer, Raw):
            with contextlib.suppress(OSError):
                answer.act(self)
                self.wfile.flush()
            return
        response = {"uid": review.get("request", {}).get("uid", ""), **answer}
        whole = {"apiVersion": review.get("apiVersion"), "kind": review.get("kind"), "response": response}
        page(200, json.dumps(whole).encode()).act(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log to stderr."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore all errors, such as that of a connection that the client closed."""


@contextlib.contextmanager
def running_webhook(
    directory: Path,
    names: tuple[str, ...] = ("localhost", "127.0.0.1"),
    *,
    expired: bool = False,
    plain: bool = False,
    signer: tls.TestAuthority | None = None,
) -> Iterator[Webhook]:
    """Run a webhook on a free local port, without TLS if ``plain`` is true.

    ``names`` are the names in its certificate. ``signer`` signs the certificate, by default the authority that clients
    trust.
    """
    authority = tls.authority()
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    if not plain:
        context = tls.server_context(signer or authority, directory, names, expired=expired)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    webhook = Webhook(server, authority, "v1")
    handler.webhook = webhook  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        webhook.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def fixtures(said: Answer = allow) -> tuple[Any, Any]:
    """Return two fixtures: a webhook for a module, and the same webhook, reset before each test.

    After a reset, its answer is ``said``.
    """

    @pytest.fixture(scope="module")
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
        with running_webhook(tmp_path_factory.mktemp("webhook")) as webhook:
            yield webhook

    @pytest.fixture
    def hook(running: Webhook) -> Webhook:
        running.forget()
        running.answer = said
        return running

    return running, hook


@contextlib.contextmanager
def in_another_process(**answers: Answer) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Run a webhook in another process.

    Each keyword is a path without its slash, with the answer for this path. Yield the function path → clientConfig.
    """
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(answers, theirs), daemon=True)
    process.start()
    try:
        assert ours.poll(START_WITHIN), "the webhook's process says nothing"
        whole: dict[str, Any] = ours.recv()
        yield lambda path: {**whole, "url": f"{whole['url']}{path}"}
    finally:
        process.kill()
        process.join(START_WITHIN)


def _serve(answers: dict[str, Answer], told: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with tempfile.TemporaryDirectory() as directory, running_webhook(Path(directory)) as hook:
        hook.answers = {f"/{path}": answer for path, answer in answers.items()}
        told.send(hook.client_config(""))
        told.recv()
