"""Events that controllers create.

Users read them with ``kubectl describe`` and ``kubectl get events``.
"""

import asyncio
import logging
import time
from collections import OrderedDict

import orjson

from apiext.auth.user import User
from apiext.controllers import limits
from apiext.controllers.loop import Loop
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.meta.syntax import dns1123_subdomain
from apiext.storage.store import StoreError
from apiext.verbs import api
from apiext.verbs.call import Body, Call, Verbs

log = logging.getLogger(__name__)

_EVENTS = GroupResource("", "events")
_DEFAULT = "default"  # the namespace of Events about cluster-scoped objects


class Events:
    """Creates the Events of a controller in background tasks.

    So slow admission of an Event does not block the controller. An Event with the same object, reason and message is
    sent again only after limits.EVENTS_SENT other Events. Events over the limit of the queue and Events that cannot be
    created are logged and dropped, as upstream.
    """

    def __init__(self, verbs: Verbs, component: str, user: User) -> None:
        self._verbs = verbs
        self._component = component
        self._user = user
        self._loop = Loop("events", self._create, width=4)
        self._queued: dict[str, Document] = {}
        self._sent: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to create Events in tasks of the group."""
        self._loop.start(group)

    async def stop(self) -> None:
        """Stop, and drop queued Events."""
        await self._loop.stop()

    def warn(self, about: Document, reason: str, message: str) -> None:
        """Queue an Event of type Warning.

        ``about`` has apiVersion, kind, namespace, name and uid of the object.
        """
        event_key = (about["uid"], reason, message)
        if event_key in self._sent:
            return
        if len(self._queued) >= limits.EVENTS_WAITING:
            log.warning("event dropped, the queue is full: %s of %s: %s", reason, about["name"], message)
            return
        self._sent[event_key] = None
        if len(self._sent) > limits.EVENTS_SENT:
            self._sent.popitem(last=False)
        name = f"{about['name']}.{time.time_ns():x}"
        if dns1123_subdomain(name):
            name = f"{about['uid']}.{time.time_ns():x}"
        self._queued[name] = self._event(name, about, reason, message)
        self._loop.add(name)

    def _event(self, name: str, about: Document, reason: str, message: str) -> Document:
        now = self._verbs.clock()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.get("namespace") or _DEFAULT},
            "involvedObject": {field: value for field, value in about.items() if value},
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "reportingComponent": self._component,
            "reportingInstance": "",
        }

    async def _create(self, name: str) -> None:
        event = self._queued.pop(name, None)
        resource = self._verbs.catalog.current.resource(_EVENTS.group, _EVENTS.resource)
        if event is None or resource is None:
            return
        served, namespace = resource.versions["v1"], event["metadata"]["namespace"]
        query = {"fieldManager": [self._component]}
        call = Call("create", served, resource, served.endpoints[""], namespace, "", query, self._user, self._component)
        try:
            await api.create(self._verbs, call, Body(event, [], "application/json", orjson.dumps(event)))
        except (StatusError, StoreError) as error:
            about = event["involvedObject"]["name"]
            log.warning("event %s of %s could not be created: %s", event["reason"], about, error)
