"""Controllers imported only when the first object of their resource exists (decision 36)."""

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Protocol

from apiext.admission.object_lookup import ATTRIBUTES_CLASSES, CLAIMS, VOLUMES
from apiext.config import CLAIM_PROTECTION, CLASS_PROTECTION, VOLUME_PROTECTION
from apiext.meta.names import GroupResource
from apiext.storage.history import Change
from apiext.verbs.call import Verbs

PROTECTIONS: Mapping[str, GroupResource] = {
    CLAIM_PROTECTION: CLAIMS,
    VOLUME_PROTECTION: VOLUMES,
    CLASS_PROTECTION: ATTRIBUTES_CLASSES,
}
"""Name of a protection controller → the resource that it protects."""


class _Controller(Protocol):
    def start(self, group: asyncio.TaskGroup) -> None:
        """Follow the objects of the resource."""

    async def stop(self) -> None:
        """Cancel running work."""


class LateController:
    """Starts a controller when the first object of its resource exists.

    The controller is ``class_name(verbs, collection, *more)`` of the module ``apiext.controllers.<module>``.
    """

    def __init__(self, verbs: Verbs, resource: GroupResource, module: str, class_name: str, *more: str) -> None:
        self._verbs = verbs
        self._source = (module, class_name, more)
        self._group: asyncio.TaskGroup | None = None
        self._running: _Controller | None = None
        self._collection = verbs.store.collection(resource)
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to the resource, if it is served, to wait for the first object."""
        self._group = group
        if self._collection is not None:
            self._unsubscribe = self._collection.follow(self._start_controller)

    async def stop(self) -> None:
        """Stop the controller if it runs."""
        if self._running is not None:
            await self._running.stop()

    def _start_controller(self, _: Change) -> None:
        if self._running is not None or self._group is None:
            return
        module, class_name, more = self._source
        self._running = getattr(import_module(f"apiext.controllers.{module}"), class_name)(
            self._verbs, self._collection, *more
        )
        self._running.start(self._group)
        asyncio.get_running_loop().call_soon(self._end_subscription)

    def _end_subscription(self) -> None:
        # This runs in a later iteration of the event loop: ``follow`` may call _start_controller before it returns, so
        # before ``_unsubscribe`` is set.
        self._unsubscribe()
