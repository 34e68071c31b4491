"""Compile the data files of built-in kinds and the files proto/*.proto.

The first step also writes proto/k8s.proto from the data files. An error in a data file changes no file.
--check only reports whether the stored files are up to date.
"""

import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from apiext.go_types import compiling
from apiext.go_types.proto_text import proto_text

ROOT = Path(__file__).resolve().parent.parent
SETS = {
    "etcd.proto": "apiext/etcd/pb/etcd.binpb",
    "openapi_v2.proto": "apiext/discovery/pb/openapi_v2.binpb",
    "openapi_v3.proto": "apiext/discovery/pb/openapi_v3.binpb",
    "discovery.proto": "apiext/discovery/pb/discovery.binpb",
    "k8s.proto": "apiext/http/pb/k8s.binpb",
    "kms.proto": "apiext/kms/pb/kms.binpb",
}


def compiled(source: Path, into: Path) -> bytes:
    """Return the descriptor set of one file and of all files that it imports."""
    out = into / f"{source.stem}.binpb"
    arguments = ["protoc", f"-I{source.parent}", f"-I{files('grpc_tools') / '_proto'}", "--include_imports"]
    if protoc.main([*arguments, f"--descriptor_set_out={out}", source.name]) != 0:
        raise SystemExit(f"{source.name} does not compile")
    return out.read_bytes()


def generated() -> dict[str, bytes]:
    """Return name of a generated file → its content."""
    tables = compiling.read_tables()
    types = compiling.check(tables)
    found = {f"apiext/go_types/compiled/{name}.json": raw for name, raw in compiling.compiled(tables).items()}
    found["proto/k8s.proto"] = proto_text(types).encode()
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(shutil.copytree(ROOT / "proto", Path(scratch) / "proto"))
        (sources / "k8s.proto").write_bytes(found["proto/k8s.proto"])
        found |= {output: compiled(sources / name, Path(scratch)) for name, output in SETS.items()}
    return found


def main(check: bool) -> int:
    try:
        outputs = generated()
    except ValueError as error:
        raise SystemExit(str(error)) from error
    stale = [renew(name, wanted, check) for name, wanted in outputs.items()]
    return 1 if any(stale) else 0


def renew(name: str, wanted: bytes, check: bool) -> int:
    """Write a generated file if it is stale; with ``check``, only report that.

    Return 1 if the file is stale and ``check`` is true.
    """
    target = ROOT / name
    if target.exists() and target.read_bytes() == wanted:
        return 0
    if check:
        print(f"{name} is stale: run scripts/gen-proto")
        return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(wanted)
    print(f"{name}: {len(wanted)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
