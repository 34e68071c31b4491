"""Protobuf messages of a package, from a descriptor set that scripts/gen-proto generates.

``google.protobuf.descriptor_pool`` imports the Python implementation of protobuf, even if the C implementation is used.
This import slows down the start of the server, so a stand-in replaces it (decision 36). If some code uses the stand-in,
the stand-in imports the module.
"""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.internal import api_implementation

from apiext.system.stand_ins import standing_in

_IN_PYTHON = "google.protobuf.internal.python_message"

with standing_in([_IN_PYTHON] if api_implementation.Type() == "upb" else []):
    from google.protobuf import descriptor_pool, message_factory

Pool = descriptor_pool.DescriptorPool
class_of = message_factory.GetMessageClass
"""(descriptor of a message) → class of the message."""


def pool_of(path: Path) -> Pool:
    """Return a pool of the messages in a file with a google.protobuf.FileDescriptorSet.

    The pool is private, since another library of the process may use the same message names.
    """
    pool = Pool()
    for file in _files(path.read_bytes()):
        pool.AddSerializedFile(file)
    return pool


def _files(descriptor_set: bytes) -> Iterator[bytes]:
    """Yield each encoded FileDescriptorProto.

    They are the values of the repeated field 1, so a tag byte and a varint length precede each.
    """
    at = 0
    while at < len(descriptor_set):
        length, shift, at = 0, 0, at + 1
        while descriptor_set[at] & 0x80:
            length |= (descriptor_set[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
        length |= descriptor_set[at] << shift
        yield descriptor_set[at + 1 : at + 1 + length]
        at += 1 + length
