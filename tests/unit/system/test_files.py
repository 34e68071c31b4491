"""Files of other users are not written, trusted or removed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from apiext import launch
from apiext.audit.files import LogFile, Rotation
from apiext.auth import kubeconfig
from apiext.config import Config, ConfigError, EtcdConfig
from apiext.system import files
from tests.support.configs import config_of

OTHER = 12_345
Give = Callable[[Path], None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Return a function that gives a file to another user.

    It uses chown as root, otherwise a patched stat.
    """
    if os.geteuid() == 0:
        return lambda path: os.chown(path, OTHER, OTHER, follow_symlinks=False)
    given: set[tuple[int, int]] = set()
    plain_lstat, plain_stat = Path.lstat, os.stat

    def seen(found: os.stat_result) -> os.stat_result:
        values = list(found)
        if (found.st_dev, found.st_ino) in given:
            values[stat.ST_UID] = values[stat.ST_GID] = OTHER
        return os.stat_result(values)

    monkeypatch.setattr(Path, "lstat", lambda path: seen(plain_lstat(path)))
    monkeypatch.setattr(Path, "stat", lambda path, **how: seen(plain_stat(path, **how)))
    monkeypatch.setattr(os, "stat", lambda path, **how: seen(plain_stat(path, **how)))
    plain_fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: seen(plain_fstat(descriptor)))

    def mark(path: Path) -> None:
        found = plain_lstat(path)
        given.add((found.st_dev, found.st_ino))

    return mark


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a directory that all users may write to, such as /tmp."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def config(tmp_path: Path, ready: Path) -> Config:
    data = tmp_path / "data"
    return config_of(data, port=0, ready_file=str(ready), etcd=EtcdConfig(("http://127.0.0.1:1",)))


def test_link_of_another_user_is_not_followed(tmp_path: Path, shared: Path, give: Give) -> None:
    mine, link = tmp_path / "mine", shared / "ready"
    mine.write_text(json.dumps({"pid": os.getpid()}))
    link.symlink_to(mine)
    give(link)
    with pytest.raises(PermissionError, match=f"this link belongs to user {OTHER}"):
        files.write(link, b"x")
    with pytest.raises(ConfigError, match=f"--ready-file {link}: this link belongs to user {OTHER}"):
        launch.prepare(config(tmp_path, link))
    with pytest.raises(PermissionError):
        kubeconfig.check_replaceable(link)
    with pytest.raises(PermissionError):
        kubeconfig.write(link, kubeconfig.Access("http://x"))
    with pytest.raises(PermissionError):
        LogFile(link, Rotation())
    launch.retract(config(tmp_path, link))
    assert json.loads(mine.read_text()) == {"pid": os.getpid()}
    assert link.is_symlink()


def test_own_link_to_link_of_another_user_is_not_followed(tmp_path: Path, shared: Path, give: Give) -> None:
    (shared / "first").symlink_to("second")
    (shared / "second").symlink_to(tmp_path / "mine")
    give(shared / "second")
    with pytest.raises(PermissionError):
        files.write(shared / "first", b"x")
    assert not (tmp_path / "mine").exists()


def test_own_link_is_followed(tmp_path: Path, shared: Path) -> None:
    (shared / "first").symlink_to("second")
    (shared / "second").symlink_to(tmp_path / "mine")
    files.write(shared / "first", b"x")
    assert (tmp_path / "mine").read_bytes() == b"x"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        files.write(tmp_path / "loop", b"x")


def test_file_of_another_user_in_shared_directory_is_kept(tmp_path: Path, shared: Path, give: Give) -> None:
    ready = shared / "ready"
    ready.write_text(json.dumps({"pid": os.getpid()}))
    give(ready)
    with pytest.raises(PermissionError, match="it belongs to another user, in a directory that all users may write to"):
        files.write(ready, b"x")
    launch.prepare(config(tmp_path, ready))
    launch.retract(config(tmp_path, ready))
    assert json.loads(ready.read_text()) == {"pid": os.getpid()}
    os.mkfifo(shared / "pipe")
    give(shared / "pipe")
    with pytest.raises(PermissionError, match="this pipe belongs"):
        files.write(shared / "pipe", b"x")


def test_write_replaces_a_file_and_leaves_no_temporary_file(tmp_path: Path, shared: Path) -> None:
    for directory in (tmp_path, shared):
        file = directory / "file"
        file.write_text("before")
        file.chmod(0o644)
        before = set(directory.iterdir())
        files.write(file, b"after")
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"after", 0o600)
        assert set(directory.iterdir()) == before
    long = tmp_path / ("x" * 255)
    files.write(long, b"x")
    files.remove(long)
    files.remove(long)
    assert not long.exists()


def test_data_directory_open_to_other_users_is_refused(tmp_path: Path, give: Give) -> None:
    data = tmp_path / "data"
    launch.prepare(Config(data))
    launch.prepare(Config(data))
    data.chmod(0o777)
    with pytest.raises(ConfigError, match=f"--data-dir {data}: all users may write to it .mode 777.*chmod o-w"):
        launch.prepare(Config(data))
    data.chmod(0o1777)
    launch.prepare(Config(data))
    data.chmod(0o770)
    launch.prepare(Config(data))  # like a volume of a pod; the group is one of the server's
    for name in ("admin.token", "pki/ca.key"):
        (data / "pki").mkdir(exist_ok=True)
        file = data / name
        file.write_text("secret")
        launch.prepare(Config(data))
        file.chmod(0o666)
        with pytest.raises(ConfigError, match=r"all users may write to it \(mode 666\)"):
            launch.prepare(Config(data))
        file.chmod(0o600)
        give(file)
        with pytest.raises(ConfigError, match=f"this file belongs to user {OTHER}, and the server runs as user"):
            launch.prepare(Config(data))
        file.unlink()
    give(data)
    with pytest.raises(ConfigError, match=f"this directory belongs to user {OTHER}"):
        launch.prepare(Config(data))


@pytest.mark.parametrize(("mode", "user", "refused"), [(0o777, 1000, True), (0o1777, 1000, False), (0o777, 0, False)])
def test_directory_that_all_users_may_write_to_is_refused_without_sticky_bit(
    mode: int, user: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write to each directory, since it often runs in containers with such directories."""
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(PermissionError, match="chmod o-w") if refused else nullcontext():
        files.write(directory / "ready", b"x")
    assert (directory / "ready").exists() != refused


def test_data_directory_writable_by_foreign_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    launch.prepare(Config(data))
    data.chmod(0o770)
    monkeypatch.setattr(files, "_groups", lambda: {OTHER})
    with pytest.raises(ConfigError, match=f"group {data.stat().st_gid} may write to it"):
        launch.prepare(Config(data))


def test_mount_point_of_another_user_is_accepted_as_data_dir(
    tmp_path: Path, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    launch.prepare(Config(data))
    data.chmod(0o777)
    give(data)
    with pytest.raises(ConfigError):
        launch.prepare(Config(data))
    monkeypatch.setattr(Path, "is_mount", lambda path: path == data)
    launch.prepare(Config(data))
    (data / "admin.token").write_text("secret")
    give(data / "admin.token")  # as if the server had run as the user of the volume before
    launch.prepare(Config(data))
    (data / "admin.token").chmod(0o666)
    with pytest.raises(ConfigError):
        launch.prepare(Config(data))
