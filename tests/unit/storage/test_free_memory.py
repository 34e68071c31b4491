"""The free memory of a control group, for both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from apiext import limits as server_limits
from apiext.storage import free_memory as free_memory_module
from apiext.storage import limits as storage_limits
from apiext.storage.etcd_store import EtcdStore
from apiext.storage.free_memory import FreeMemory, control_groups
from apiext.storage.store import Overloaded
from tests.support.fake_etcd import FakeEtcd

MIB = 1 << 20
NONE = "9223372036854771712"  # the value of version 1 without a limit


def write_files(place: Path, **files: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name.replace("__", ".")).write_text(text)


def write_cgroup_v1(place: Path, limit: object, used: int, cached: int) -> None:
    stat = f"cache 5\ninactive_file 1\ntotal_inactive_file {cached}\ntotal_active_file 0\n"
    write_files(place, memory__limit_in_bytes=f"{limit}\n", memory__usage_in_bytes=f"{used}\n", memory__stat=stat)


def write_cgroup_v2(place: Path, limit: object, used: int, cached: int) -> None:
    stat = f"anon 5\ninactive_file {cached - 4096}\nactive_file 4096\n"
    write_files(place, memory__max=f"{limit}\n", memory__current=f"{used}\n", memory__stat=stat)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory_module, "MEMORY_CACHED", -1.0)


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize(
    ("line", "make", "folder"),
    [("4:cpu,memory:/a/b", write_cgroup_v1, "memory"), ("0::/a/b", write_cgroup_v2, "")],
    ids=["version 1", "version 2"],
)
def test_fits_compares_sizes_with_free_cgroup_memory(tmp_path: Path, line: str, make: object, folder: str) -> None:
    assert callable(make)
    own, mount = tmp_path / "cgroup", tmp_path / "mount"
    own.write_text(f"9:name=systemd:/x\n{line}\n")
    none = NONE if make is write_cgroup_v1 else "max"
    make(mount / folder / "a" / "b", none, 10 * MIB, MIB)
    make(mount / folder, none, 10 * MIB, MIB)
    make(mount / folder / "a", none, 10 * MIB, MIB)
    assert control_groups(own, mount) == []
    make(mount / folder / "a", 256 * MIB, 110 * MIB, 10 * MIB)
    room = FreeMemory(control_groups(own, mount))
    assert room.fits((256 - 100 - 32) * MIB)
    assert not room.fits((256 - 100 - 32) * MIB + 1)
    make(mount / folder / "a", 4096 * MIB, 110 * MIB, 10 * MIB)
    assert room.fits(4096 * MIB - 100 * MIB - storage_limits.MEMORY_RESERVE)
    make(mount / folder / "a", 4096 * MIB, 4095 * MIB, 10 * MIB)
    assert not room.fits(0)
    make(mount / folder / "a", none, 4095 * MIB, 10 * MIB)  # the limit was removed
    assert room.fits(1 << 40)


@pytest.mark.usefixtures("now")
async def test_new_or_large_objects_are_refused_without_free_memory(tmp_path: Path) -> None:
    """Small changes of existing objects need no reserved memory, as they may free memory."""
    own, mount = tmp_path / "cgroup", tmp_path / "mount"
    own.write_text("0::/\n")
    write_cgroup_v2(mount, 256 * MIB, 100 * MIB, 4096)
    store = EtcdStore(FakeEtcd(), FreeMemory(control_groups(own, mount)))  # type: ignore[arg-type]
    made = await store.put("/k", b"{}", 0, None)
    write_cgroup_v2(mount, 256 * MIB, 256 * MIB, 4096)
    large = b"x" * (server_limits.WORK_INLINE + 1)
    for key, raw, expected in (("/new", b"{}", 0), ("/k", large, made.revision)):
        with pytest.raises(Overloaded):
            await store.put(key, raw, expected, None)
    assert (await store.put("/k", large[1:], made.revision, None)).ok


def test_cgroup_limit_is_read_from_the_mount_root(tmp_path: Path) -> None:
    own, mount = tmp_path / "cgroup", tmp_path / "mount"
    own.write_text("0::/kubelet/pod/container\n")
    write_cgroup_v2(mount, 64 * MIB, 60 * MIB, 8192)
    assert [files.limit for files in control_groups(own, mount)] == [mount / "memory.max"]


@pytest.mark.parametrize("text", [None, "", "0::/nowhere\n"])
def test_every_size_fits_without_cgroups(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "cgroup").write_text(text)
    assert FreeMemory(control_groups(tmp_path / "cgroup", tmp_path / "mount")).fits(1 << 60)
