"""The serialized objects of k8s.io/api are unchanged by JSON, YAML and protobuf.

The objects are those of new and old releases.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from apiext.documents.encoding import decode_yaml, encode_yaml
from apiext.go_types.typed import decode
from apiext.http import protobuf
from apiext.http.messages import message_class
from tests.unit.catalog.test_every_field import KINDS, Kind

MODULE = "k8s.io/api"
OF_OTHER_MODULES = {"apiextensions.k8s.io", "apiregistration.k8s.io"}


@cache
def fixtures_folder() -> Path | None:
    """Return the folder of the fixtures in the newest release of the module in Go's cache.

    Return None without a release.
    """
    folder = os.environ.get("GOMODCACHE", "")
    if not folder and shutil.which("go") is not None:
        folder = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=False).stdout.strip()
    found = (Path(folder) if folder else Path.home() / "go/pkg/mod").glob(f"{MODULE}@v0.*/testdata")
    return max(found, key=lambda path: [int(it) for it in re.findall(r"\d+", path.parent.name)], default=None)


def stem(kind: Kind) -> str:
    group, _, version = kind.version.names.api_version.rpartition("/")
    return f"{group or 'core'}.{version}.{kind.version.names.kind}"


def fixtures_or_skip() -> Path:
    """Return the folder of the fixtures, or skip the test."""
    folder = fixtures_folder()
    if folder is None:
        pytest.skip(f"{MODULE} is not in Go's module cache: go mod download {MODULE}@v0.37.2")
    return folder


def message(raw: bytes, kind: Kind) -> Any:
    """Return the protobuf message within an envelope.

    A zero that Go writes equals a missing field.
    """
    names = kind.version.names
    assert raw.startswith(protobuf.PREFIX)
    envelope = message_class("Unknown").FromString(raw[len(protobuf.PREFIX) :])
    assert (envelope.typeMeta.apiVersion, envelope.typeMeta.kind) == (names.api_version, names.kind)
    return message_class(protobuf.messages()[names.api_version, names.kind]).FromString(envelope.raw)


def cases() -> list[Any]:
    """Return each kind with each release that contains it.

    Without the module, return one release whose tests are skipped.
    """
    folder = fixtures_folder()
    if folder is None:
        return [pytest.param(kind, "HEAD", id=stem(kind)) for kind in KINDS]
    return [
        pytest.param(kind, release.name, id=f"{stem(kind)}-{release.name}")
        for release in sorted(folder.iterdir())
        for kind in KINDS
        if (release / f"{stem(kind)}.json").exists()
    ]


@pytest.mark.parametrize(("kind", "release"), cases())
def test_fixture_round_trips_json_yaml_and_protobuf(kind: Kind, release: str) -> None:
    folder = fixtures_or_skip() / release
    given = orjson.loads((folder / f"{stem(kind)}.json").read_bytes())
    # for fields that were added or removed since, upstream has a file with the result
    after = folder / f"{stem(kind)}.after_roundtrip.json"
    wanted = orjson.loads(after.read_bytes()) if after.exists() else given
    written = (after if after.exists() else folder / f"{stem(kind)}.json").with_suffix(".pb").read_bytes()

    found, unknown = decode(kind.struct, given)
    assert found == wanted
    assert after.exists() or not unknown
    as_yaml = (folder / f"{stem(kind)}.yaml").read_bytes()
    assert decode(kind.struct, decode_yaml(as_yaml)[0])[0] == wanted
    assert encode_yaml(given) == as_yaml
    read = protobuf.decode((folder / f"{stem(kind)}.pb").read_bytes())
    assert decode(kind.struct, read)[0] == wanted
    ours = protobuf.encode(wanted)
    assert protobuf.decode(ours) == protobuf.decode(written)
    assert message(ours, kind) == message(written, kind)


def test_each_kind_has_an_upstream_fixture() -> None:
    folder = fixtures_or_skip() / "HEAD"
    without = {stem(kind) for kind in KINDS if not (folder / f"{stem(kind)}.json").exists()}
    unknown = {it for it in without if it.partition(".v1")[0] not in OF_OTHER_MODULES}
    assert unknown == set(), f"kinds without fixtures in {MODULE}: add the group to OF_OTHER_MODULES"
