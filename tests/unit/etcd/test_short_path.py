"""Unix sockets whose path is longer than a socket address allows."""

from pathlib import Path

import pytest

from apiext.etcd.dial import SUN_PATH, short_path


@pytest.mark.parametrize("depth", [0, 5])
def test_short_path_fits_into_a_socket_address(tmp_path: Path, depth: int) -> None:
    directory = tmp_path.joinpath(*["d" * 40] * depth)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sock").write_text("here")
    with short_path(str(directory / "sock")) as path:
        assert len(path) <= SUN_PATH
        assert Path(path).read_text() == "here"
