"""Load the protobuf messages of a package from a descriptor set, which scripts/gen-proto generates.

``google.protobuf.descriptor_pool`` imports protobuf's implementation in Python, although the one in C is in use. That
takes a twentieth of the start, so a stand-in replaces it. The stand-in imports the module if it is used after all.
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
"""Returns the class of a message from its descriptor."""


def pool_of(path: Path) -> Pool:
    """Return a pool of the messages in a file with a google.protobuf.FileDescriptorSet.

    The pool is private, since another library of the process may use the same message names.
    """
    pool = Pool()
    for file in _files(path.read_bytes()):
        pool.AddSerializedFile(file)
    return pool


def _files(descriptor_set: bytes) -> Iterator[bytes]:
    """Yield each encoded FileDescriptorProto: all are field 1, each has one tag byte and its length as a varint."""
    at = 0
    while at < len(descriptor_set):
        length, shift, at = 0, 0, at + 1
        while descriptor_set[at] & 0x80:
            length |= (descriptor_set[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
        length |= descriptor_set[at] << shift
        yield descriptor_set[at + 1 : at + 1 + length]
        at += 1 + length
