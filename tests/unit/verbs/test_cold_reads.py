"""A schema is compiled in a thread, once, for the first reads of its objects."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from apiext.auth.user import SUPERUSER
from apiext.catalog.compile import compile_definition
from apiext.conformance.support.definitions import definition
from apiext.verbs import threads
from apiext.verbs.call import Call

SCHEMA = {"type": "object", "properties": {f"p{number}": {"type": "string", "default": "x"} for number in range(50)}}
RAW = b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","uid":"u"},"other":1}\n'


def a_call(seen: list[int]) -> Call:
    document = definition("example.com", schema={"openAPIV3Schema": SCHEMA})

    def again() -> dict[str, Any]:
        seen.append(threading.get_ident())
        return document

    resource = compile_definition(document, again=again)
    served = resource.versions["v1"]
    return Call("get", served, resource, served.endpoints[""], "default", "a", {}, SUPERUSER)


@pytest.mark.rows("PRU-007", "NUL-005")
def test_the_first_read_compiles_in_a_thread() -> None:
    seen: list[int] = []
    call = a_call(seen)

    async def read() -> bytes:
        await threads.prepare(call)
        return call.served.codec.view(RAW, 1)

    assert call.served.work.cold()
    with asyncio.Runner() as runner:
        shown = runner.run(read())
        assert not call.served.work.cold()
        assert runner.run(read()) == shown
    assert len(seen) == 1
    assert seen[0] != threading.get_ident()
    assert b'"p49":"x"' in shown
    assert b"other" not in shown


def test_write_prepares_schema_for_reads() -> None:
    call = a_call([])
    call.served.model.normalize({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}})
    call.served.work.prepare()
    assert not call.served.work.cold()
    assert call.served.work.slow(1), "but nothing was judged yet"
