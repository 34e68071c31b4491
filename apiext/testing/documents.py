"""Read test objects from files and directories, in the order in which they are created."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from apiext.documents.errors import DecodeError
from apiext.tools.manifests import decode, parts

Manifest = Mapping[str, Any]
Source = str | Path | Manifest | Iterable["str | Path | Manifest"]
"""A file, a directory, an object, or several of these."""

_SUFFIXES = (".yaml", ".yml", ".json")
_FIRST = ("Namespace", "CustomResourceDefinition")  # created first


def read(source: Source) -> list[Manifest]:
    """Return the objects of a source, with the items of lists as single objects.

    Definitions and namespaces come first, then the other objects in their order. For a directory, read its YAML and
    JSON files by name, without subdirectories. Scalars are decoded as kubectl decodes them. Raise OSError
    for a file that cannot be read. Raise ValueError for a text that cannot be decoded, or that is not an object with
    apiVersion and kind.
    """
    found = list(_objects(source))
    return sorted(found, key=lambda manifest: manifest["kind"] not in _FIRST)


def _objects(source: Source) -> Iterator[Manifest]:
    if isinstance(source, str | Path):
        yield from _of_path(Path(source))
    elif isinstance(source, Mapping):
        yield from _taken_apart(source, "an object")
    else:
        for one in source:
            yield from _objects(one)


def _of_path(path: Path) -> Iterator[Manifest]:
    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in _SUFFIXES and file.is_file():
                yield from _of_path(file)
        return
    for line, piece in parts(path.read_bytes()):
        try:
            document, _ = decode(piece)
        except DecodeError as error:
            raise ValueError(f"{path}:{line}: {error}") from error
        if document is not None:
            yield from _taken_apart(document, str(path))


def _taken_apart(document: Any, where: str) -> Iterator[Manifest]:
    if not isinstance(document, Mapping) or not document.get("kind") or not document.get("apiVersion"):
        raise ValueError(f"{where}: not an object with apiVersion and kind")
    if document["kind"] == "List":
        items = document.get("items")
        if not isinstance(items, list | None):
            raise ValueError(f"{where}: the items of a List are not a list")
        for item in items or ():
            yield from _taken_apart(item, where)
    else:
        yield document


def check_name(manifest: Manifest) -> None:
    """Raise ValueError for an object without a name, since an apply requires a name."""
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    if not metadata.get("name"):
        which = f" {prefix}" if (prefix := metadata.get("generateName")) else ""
        raise ValueError(f"{manifest['kind']}{which}: apply needs metadata.name")
