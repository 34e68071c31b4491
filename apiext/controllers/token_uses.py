"""The controller that labels token secrets with the day on which their token was last used.

Upstream: serviceaccount/legacy.go.
"""

import asyncio

import orjson

from apiext.auth.bound_objects import LAST_USED
from apiext.auth.tokens import Tokens
from apiext.auth.user import service_account
from apiext.config import ACCOUNT_TOKENS
from apiext.controllers.loop import Loop
from apiext.meta import time
from apiext.meta.status import StatusError
from apiext.verbs import api
from apiext.verbs.call import Call, Verbs
from apiext.verbs.reviews import SECRETS

USER = service_account("kube-system", "tokens-controller")
MERGE = "application/merge-patch+json"
_DAY = len("2006-01-02")
# the codes if the secret was deleted, or if a new secret with another uid has its name
_REPLACED = frozenset((404, 422))


def call_of(verbs: Verbs, verb: str, namespace: str, name: str) -> Call:
    """Return a call of the API for a secret."""
    resource = verbs.catalog.current.resource(SECRETS.group, SECRETS.resource)
    assert resource is not None
    served = resource.versions["v1"]
    query = {"fieldManager": [ACCOUNT_TOKENS]} if verb == "patch" else {}
    return Call(verb, served, resource, served.endpoints[""], namespace, name, query, USER, ACCOUNT_TOKENS)


class TokenUses:
    """The controller. It labels secrets whose tokens were used in requests to this worker."""

    def __init__(self, verbs: Verbs, tokens: Tokens) -> None:
        self._verbs = verbs
        self._tokens = tokens
        self._loop = Loop("uses of tokens", self._record, width=2)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to label secrets."""
        self._loop.start(group)
        self._tokens.used = self._used

    async def stop(self) -> None:
        """Cancel running work. The next use of a token queues its secret again."""
        await self._loop.stop()

    def _used(self, namespace: str, name: str, uid: str) -> None:
        self._loop.add(f"{namespace}/{name}/{uid}")

    async def _record(self, key: str) -> None:
        namespace, name, uid = key.split("/")
        wanted = {"metadata": {"uid": uid, "labels": {LAST_USED: time.now()[:_DAY]}}}
        try:
            await api.patch(self._verbs, call_of(self._verbs, "patch", namespace, name), MERGE, orjson.dumps(wanted))
        except StatusError as error:
            if error.code not in _REPLACED:
                raise
