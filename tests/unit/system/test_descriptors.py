"""Descriptor sets are loaded without protobuf's implementation in Python.

This implementation stays complete for other code.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import apiext
from apiext.system.descriptors import pool_of

SETS = sorted(Path(apiext.__file__).parent.glob("*/pb/*.binpb"))
WITHOUT = """
import sys
from pathlib import Path
from apiext.system.descriptors import class_of, pool_of
late = {"google.protobuf.descriptor_pb2", "google.protobuf.internal.python_message", "google.protobuf.text_format"}
assert not late & set(sys.modules), late & set(sys.modules)
"""
USE = """
pool = pool_of(Path(sys.argv[1]))
message = class_of(pool.FindMessageTypeByName("etcdserverpb.RangeRequest"))
assert message.FromString(message(key=b"a", limit=3).SerializeToString()) == message(key=b"a", limit=3)
"""
OTHER_CODE = """
from google.protobuf import descriptor_pb2, text_format, timestamp_pb2
assert text_format.MessageToString(timestamp_pb2.Timestamp(seconds=3)) == "seconds: 3\\n"
file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a")
assert descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString()).package == "a"
"""


@pytest.mark.parametrize("path", SETS, ids=[path.stem for path in SETS])
def test_a_pool_has_the_messages_of_each_file(path: Path) -> None:
    pool = pool_of(path)
    files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    assert files
    for file in files:
        copy = descriptor_pb2.FileDescriptorProto()
        pool.FindFileByName(file.name).CopyToProto(copy)
        assert [message.name for message in copy.message_type] == [message.name for message in file.message_type]
        assert copy.SerializeToString(deterministic=True) == file.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("implementation", "program"),
    [
        ("upb", WITHOUT + USE),
        ("upb", WITHOUT + OTHER_CODE + USE),
        ("upb", OTHER_CODE + WITHOUT.replace("assert", "#") + USE),
        ("python", WITHOUT.replace("assert", "#") + USE + OTHER_CODE),
    ],
    ids=["alone", "before other code", "after other code", "implementation in Python"],
)
def test_descriptor_pool_works_with_other_protobuf_code(implementation: str, program: str) -> None:
    etcd = next(path for path in SETS if path.stem == "etcd")
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    command = [sys.executable, "-c", program, str(etcd)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert ended.returncode == 0, ended.stderr
