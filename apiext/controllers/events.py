"""Events that controllers create: users see them in ``kubectl describe`` and ``kubectl get events``."""

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
_DEFAULT = "default"  # the namespace of events about objects of the cluster


class Events:
    """Creates the Events of one controller in the background; admission webhooks for Events block nothing else.

    An Event for the same object, reason and message is sent once, until limits.EVENTS_SENT other ones were sent. Events
    over the limit of the queue, and refused ones, are lost with a log line, as upstream.
    """

    def __init__(self, verbs: Verbs, component: str, user: User) -> None:
        self._verbs = verbs
        self._component = component
        self._user = user
        self._loop = Loop("events", self._make, width=4)
        self._waiting: dict[str, Document] = {}
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Make Events as tasks of the group."""
        self._loop.start(group)

    async def stop(self) -> None:
        """Stop; Events that wait are lost."""
        await self._loop.stop()

    def warn(self, about: Document, reason: str, message: str) -> None:
        """Make a Warning about an object (its apiVersion, kind, namespace, name and uid)."""
        known = (about["uid"], reason, message)
        if known in self._told:
            return
        if len(self._waiting) >= limits.EVENTS_WAITING:
            log.warning("an event is lost, too many are queued: %s of %s: %s", reason, about["name"], message)
            return
        self._told[known] = None
        if len(self._told) > limits.EVENTS_SENT:
            self._told.popitem(last=False)
        name = f"{about['name']}.{time.time_ns():x}"
        if dns1123_subdomain(name):
            name = f"{about['uid']}.{time.time_ns():x}"
        self._waiting[name] = self._event(name, about, reason, message)
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

    async def _make(self, name: str) -> None:
        event = self._waiting.pop(name, None)
        resource = self._verbs.catalog.current.resource(_EVENTS.group, _EVENTS.resource)
        if event is None or resource is None:
            return
        served, namespace = resource.versions["v1"], event["metadata"]["namespace"]
        asked = {"fieldManager": [self._component]}
        call = Call("create", served, resource, served.endpoints[""], namespace, "", asked, self._user, self._component)
        try:
            await api.create(self._verbs, call, Body(event, [], "application/json", orjson.dumps(event)))
        except (StatusError, StoreError) as error:
            log.warning("the event %s of %s is lost: %s", event["reason"], event["involvedObject"]["name"], error)
