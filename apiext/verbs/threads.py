"""Offload work on an object to a thread if it takes too long for the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from apiext import limits as server_limits
from apiext.catalog.converted import NeedsConversion
from apiext.documents.document import Document
from apiext.meta import status
from apiext.scheduling.shares import in_thread
from apiext.schema.work_budget import BudgetExhausted, WorkBudget, within_budget, within_loop_budget
from apiext.verbs import limits
from apiext.verbs.call import Call

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEADLINE_EXCEEDED = "request did not complete within requested timeout - context deadline exceeded"


async def prepare(call: Call) -> None:
    """Compile the schema of a resource in a thread, unless it has been compiled."""
    if call.served.work.cold():
        await asyncio.to_thread(call.served.work.prepare)


async def run(call: Call, work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run ``work`` on the event loop for a small object, else in a thread; return its result.

    If ``work`` exceeds the budget of the event loop, it runs again in a thread. So it must have no side effect before
    it raises BudgetExhausted. The work is stopped when the request ends. At the call's deadline it is stopped, and a
    504 is raised. Each user and each definition can use only some of the threads at a time, so that long work leaves
    threads for other users and definitions. If ``work`` raises NeedsConversion and ``call.convert`` is set, this
    converts the object, and ``work`` runs again, at most limits.CONVERSIONS_OF_A_CALL times (VER-004).
    """
    for _ in range(limits.CONVERSIONS_OF_A_CALL):
        try:
            if call.size < server_limits.WORK_INLINE and not call.served.work.slow(call.size):
                try:
                    return within_loop_budget(work, *args)
                except BudgetExhausted:
                    call.served.work.report(call.size, True)
            return await _in_thread(call, work, *args)
        except NeedsConversion as need:
            if call.convert is None:
                raise
            await call.convert(call, need)
    return await _in_thread(call, work, *args)


async def encoded(call: Call, document: Document) -> bytes:
    """Return the stored form of a document with normalized metadata.

    If a webhook converts the version, also convert the object for the response: so the server writes nothing if the
    webhook fails.
    """
    raw = await run(call, call.served.codec.to_store, document)
    if call.served.codec.converts:
        await run(call, call.served.codec.view, raw, 0)
    return raw


async def _in_thread(call: Call, work: Callable[[*Ts], T], *args: *Ts) -> T:
    budget = WorkBudget()
    try:
        async with asyncio.timeout_at(call.deadline or None):
            found = await in_thread(
                lambda: within_budget(budget, work, *args),
                f"user {call.user.name}",
                f"definition {call.resource.group}/{call.resource.resource}",
            )
    except TimeoutError as error:
        raise status.timeout(DEADLINE_EXCEEDED) from error
    finally:
        budget.stop()
    if budget.short:
        call.served.work.report(call.size, False)
    return found
