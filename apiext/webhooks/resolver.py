"""Addresses of services: from a file, else from DNS (VER-009).

The file maps ``name.namespace`` or ``name.namespace:port`` to an address.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from apiext.webhooks import yaml_files

log = logging.getLogger(__name__)


class ResolverError(ValueError):
    """The error of a map file that is missing or invalid."""


Address = tuple[str, int]


class Resolver:
    """Maps services to addresses; a look-up reads the file again if it has changed.

    If the new content is invalid, the previous map stays in use.
    """

    __slots__ = ("_known", "_path", "_stamp")

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._stamp = (0, 0, 0)
        self._known: Mapping[str, Address] = {}  # name.namespace[:port] → (host, port)
        if path:
            self._known, self._stamp = read_map(Path(path)), _stamp(path)

    def find(self, service: str, port: int) -> Address | None:
        """Return (host, port) for a service, ``name.namespace``, and its port.

        An entry without a port is for all ports that have no entry. Return None if the map has no entry.
        """
        if not self._path:
            return None
        self._refresh()
        return self._known.get(f"{service}:{port}") or self._known.get(service)

    def _refresh(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._known = read_map(Path(self._path))
        except ResolverError as error:
            log.warning("the map of services is invalid: %s; the previous one stays in use", error)


def _stamp(path: str) -> tuple[int, int, int]:
    """Return modification time, size and inode of a file; zeros if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_map(path: Path) -> dict[str, Address]:
    """Read a YAML or JSON file that maps ``name.namespace[:port]`` to ``host:port``.

    Raises ResolverError.
    """
    try:
        document = yaml_files.load(path)
    except (OSError, ValueError) as error:
        raise ResolverError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ResolverError(f"{path}: expected a mapping of name.namespace:port to host:port")
    return {_service(str(key)): _address(str(key), value) for key, value in document.items()}


def _is_number(port: str) -> bool:
    return port.isascii() and port.isdigit() and len(port) < 6


def _service(key: str) -> str:
    name, _, port = key.partition(":")
    parts = name.removesuffix(".svc").split(".")
    if len(parts) != 2 or not all(parts) or (port and not _is_number(port)):
        raise ResolverError(f"{key}: expected name.namespace:port")
    return ".".join(parts) + (f":{port}" if port else "")


def _address(key: str, value: object) -> Address:
    host, _, port = str(value).removeprefix("https://").rstrip("/").rpartition(":")
    if not host or not _is_number(port) or not 0 < int(port) < 65536:
        raise ResolverError(f"{key}: {value}: expected host:port")
    return host.strip("[]"), int(port)
