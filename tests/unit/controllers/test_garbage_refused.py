"""A garbage collector whose deletions are refused."""

import asyncio
from itertools import pairwise

import pytest

from apiext import limits
from apiext.admission.attributes import Attributes
from apiext.documents.document import Document
from apiext.meta.status import StatusError
from tests.unit.controllers.harness import until, widget
from tests.unit.controllers.owners import owned, world

pytestmark = pytest.mark.rows("WRI-018")


class Denying:
    """A plug-in that refuses deletions with a code, as webhooks may, and keeps the times."""

    name = "Denying"
    idle = False

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked: list[float] = []

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        return new

    async def review(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE":
            self.asked.append(asyncio.get_running_loop().time())
            raise StatusError(self.code, "Conflict", "not now")


@pytest.mark.parametrize("code", [403, 404, 409])
async def test_who_is_refused_asks_again_after_growing_pauses(code: int) -> None:
    denying = Denying(code)
    async with world(None, denying) as it:
        child = owned(widget("child"), widget("never"))
        await it.put(child)
        await until(lambda: len(denying.asked) == 7)
        assert it.find(child) is not None
    pauses = [after - before for before, after in pairwise(denying.asked)]
    assert all(pause >= 0.5 * limits.RETRY_FIRST * 2**number for number, pause in enumerate(pauses))
