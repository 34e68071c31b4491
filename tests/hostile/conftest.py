"""The fixture of the attacked server: all modules share it, since no attack may crash it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.harness import Victim, running_victim


@pytest.fixture(scope="session")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A server with plain HTTP and a memory limit."""
    with running_victim(tmp_path_factory.mktemp("victim")) as running:
        yield running
