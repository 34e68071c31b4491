"""The responses of the embedded store to random calls are equal to those of a real etcd."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from apiext.embedded.connection import Connection
from apiext.etcd.dial import dial
from apiext.etcd.transport import TLS, parse_endpoint
from tests.support import processes, store_laws
from tests.support.embedded import opened
from tests.support.laws import examples

_number = count(1)


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Etcd]:
    """An etcd for all sequences; each sequence uses separate keys and leases."""
    with processes.running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=store_laws.calls)
def test_embedded_store_responds_as_etcd(member: processes.Etcd, sequence: list[Any]) -> None:
    async def play() -> None:
        number = next(_number)
        async with opened() as memory:
            ours = await store_laws.Player(Connection(memory), b"k/", 0).play(sequence)
        connection = await dial(parse_endpoint(member.url), TLS(), lambda _: None)
        try:
            theirs = await store_laws.Player(connection, b"%d/" % number, number * 100).play(sequence)
        finally:
            connection.drain()
            await connection.closed
        assert ours == theirs

    asyncio.run(play())
