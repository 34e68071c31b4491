"""Plug-ins that are imported late.

Each write waits for the import, and all writes share one plug-in.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from apiext import limits as server_limits
from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.admission.configured import VALIDATING, Live
from apiext.admission.on_demand import OnDemandValidator
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from tests.unit.admission.test_mutating_policies import Configured, collection

pytestmark = pytest.mark.rows("ADM-001", "ADM-002")


class Denying:
    """A plug-in that denies each write."""

    name = "Denying"

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def review(self, attributes: Attributes) -> None:
        raise status.forbidden(attributes.resource, "x", "denied")


class Late:
    """A chain with a plug-in whose import takes until ``imported`` is set.

    ``created`` counts the plug-ins.
    """

    def __init__(self) -> None:
        self.imported = threading.Event()
        self.imports = self.created = 0
        self.error: Exception | None = None
        self.attributes = Configured().attributes(None)
        self.configurations = collection(VALIDATING)
        self.loop, self.begin = asyncio.get_running_loop(), asyncio.Event()
        self.configurations.apply("x", 2, b"{}")
        live = Live(self.configurations, lambda raw, _: {}, lambda view: [view])
        self.chain = Chain([OnDemandValidator("Denying", cast(Any, live), self._load)])

    def _load(self) -> Callable[[], Denying]:
        self.imports += 1
        self.loop.call_soon_threadsafe(self.begin.set)
        self.imported.wait(10)
        if self.error is not None:
            raise self.error
        return self._create

    def _create(self) -> Denying:
        self.created += 1
        return Denying()

    async def write(self) -> None:
        await self.chain.review(self.attributes)

    async def begun(self, imports: int) -> None:
        async with asyncio.timeout(10):
            while self.imports < imports:
                await self.begin.wait()
                self.begin.clear()

    async def finish(self, imports: int) -> None:
        """Wait until this number of imports has begun, then end all of them."""
        await self.begun(imports)
        self.imported.set()


async def test_nothing_is_imported_before_the_first_configuration() -> None:
    late = Late()
    late.imported.set()
    late.configurations.apply("x", 3, None)
    applies = partial(late.chain.applies, "CREATE", late.attributes.resource)
    assert applies()
    await late.write()
    assert (late.imports, applies()) == (0, False)
    late.configurations.apply("y", 4, b"{}")
    with pytest.raises(StatusError):
        await late.write()
    assert (late.imports, applies()) == (1, True)


async def test_concurrent_first_writes_share_one_plugin() -> None:
    late = Late()
    found = await asyncio.gather(late.write(), late.write(), late.finish(2), return_exceptions=True)
    assert [type(error) for error in found] == [StatusError, StatusError, type(None)]
    assert late.created == 1


async def test_cancelled_first_write_creates_no_second_plugin() -> None:
    late = Late()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(late.write())
        await late.begun(1)
        first.cancel()
        group.create_task(late.finish(2))
        with pytest.raises(StatusError):
            await late.write()
    assert first.cancelled()
    assert late.created == 1


async def test_no_write_passes_if_the_import_fails() -> None:
    late = Late()
    late.imported.set()
    late.error = ImportError("no memory")
    for _ in range(2):
        with pytest.raises(ImportError):
            await late.write()
    late.error = None
    with pytest.raises(StatusError):
        await late.write()


@pytest.mark.parametrize(
    ("configuration", "threaded"),
    [(b"{}", False), (b'"%s"' % (b"x" * server_limits.WORK_INLINE), True), (b'{"expression": ""}', True)],
    ids=["small", "large", "with an expression"],
)
async def test_costly_configurations_are_compiled_in_a_thread(configuration: bytes, threaded: bool) -> None:
    threads: list[threading.Thread] = []

    def noted(_: object, revision: int = 0) -> Any:
        threads.append(threading.current_thread())
        return [revision]

    found = collection(VALIDATING)
    live: Live[int] = Live(found, noted, noted)
    found.values.decode = lambda raw: raw
    found.apply("x", 2, configuration)
    assert await live.current() == (0,)
    assert [thread is not threading.main_thread() for thread in threads] == [threaded] * 2, "decoded, and compiled"
