"""The ``etcd`` in a directory for KUBEBUILDER_ASSETS.

It answers envtest's health check, and stores nothing. The server in the same directory keeps objects in memory. Python
runs this file by its path, so it uses only the standard library.
"""

import signal
import socket
import sys
from urllib.parse import urlsplit

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\nConnection: close\r\n\r\n"
    b'{"health":"true"}'
)
VERSION = "etcd Version: 3.6.6"
USAGE = """Usage: etcd --listen-client-urls=URL
Stands in for etcd under envtest: answers GET /health and stores nothing. Other flags are ignored.
"""


def address_of(arguments: list[str]) -> tuple[str, int]:
    """Return the host and port of --listen-client-urls; without the flag, etcd's default."""
    url, following = "http://127.0.0.1:2379", iter(arguments)
    for argument in following:
        name, given, value = argument.lstrip("-").partition("=")
        if name == "listen-client-urls":
            url = value if given else next(following, url)
    found = urlsplit(url.split(",")[0])
    return found.hostname or "127.0.0.1", found.port or 2379


def serve(listening: socket.socket) -> None:
    """Answer one request on each connection, one connection after the other."""
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(5.0)
            try:
                head = b""
                while b"\r\n\r\n" not in head and (more := connection.recv(4096)):
                    head += more
                connection.sendall(ANSWER)
            except OSError:
                pass


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; for --help and --version, only print the text."""
    if any(argument.lstrip("-") in ("help", "h") for argument in arguments):
        print(USAGE, end="")
        return 0
    if any(argument.lstrip("-") == "version" for argument in arguments):
        print(VERSION)
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    host, port = address_of(arguments)
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    with socket.create_server((host, port), family=family) as listening:
        serve(listening)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
