"""A server that survives no attack, to test the harness.

Usage: `serve --data-dir=… --ready-file=…`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HELD: list[bytes] = []


class Handler(BaseHTTPRequestHandler):
    """Answers one request at a time; three paths misbehave.

    /grow allocates a gigabyte, /spin takes a second of CPU, /refuse refuses without a reason.
    """

    def do_GET(self) -> None:
        """Misbehave according to the path."""
        if self.path == "/grow":
            HELD.append(b"x" * (1 << 30))
        if self.path == "/spin":
            until = time.process_time() + 1.0
            while time.process_time() < until:
                pass
        self.send_response(404 if self.path == "/refuse" else 200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    ready = next(it.partition("=")[2] for it in sys.argv if it.startswith("--ready-file="))
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        told = {"url": f"http://127.0.0.1:{server.server_port}", "pid": os.getpid()}
        temporary = Path(f"{ready}.new")
        temporary.write_text(json.dumps(told))
        temporary.replace(ready)
        server.serve_forever()
