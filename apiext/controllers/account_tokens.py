"""The controller of service account token secrets.

It fills in the data of the secrets, and deletes secrets of deleted accounts. Upstream: tokens_controller.go. Upstream
also deletes a secret without the uid of its account if the account does not exist. This server keeps such a secret, and
fills in its data when the account is created.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from apiext.auth.bound_objects import Account
from apiext.auth.secret_tokens import ACCOUNT_NAME, ACCOUNT_UID, TYPE
from apiext.auth.tokens import Tokens
from apiext.controllers.loop import Loop, retried_conflicts
from apiext.controllers.token_uses import MERGE, call_of
from apiext.documents.document import Document
from apiext.meta.options import DeleteOptions
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry
from apiext.verbs import api
from apiext.verbs.call import Verbs
from apiext.verbs.delete import delete

log = logging.getLogger(__name__)

_TYPE = TYPE.encode()
_ALL = ""  # the key of the run at the start, which records all stored token secrets


class _TokenSecret(NamedTuple):
    """A token secret: name and uid ("" if unknown) of its account.

    ``filled`` is true if no data is missing.
    """

    account: str
    uid: str
    filled: bool


class AccountTokens:
    """The controller of token secrets.

    ``authority()`` returns the CA certificates that clients trust.
    """

    def __init__(
        self, verbs: Verbs, secrets: Collection, accounts: Collection, tokens: Tokens, authority: Callable[[], bytes]
    ) -> None:
        self._verbs = verbs
        self._secrets = secrets
        self._accounts = accounts
        self._tokens = tokens
        self._authority = authority
        self._loop = Loop("account tokens", self._reconcile, width=2)
        self._token_secrets: dict[str, _TokenSecret] = {}  # namespace/name of the secret → token secret

    def start(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to secrets and accounts, and start the loop."""
        self._secrets.feed.subscribe(self._secret_changed)
        self._accounts.feed.subscribe(self._account_changed)
        self._loop.start(group, self._keys)
        self._loop.add(_ALL)

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self._loop.stop()

    def _keys(self) -> Iterable[str]:
        return list(self._token_secrets)

    def _secret_changed(self, change: Change) -> None:
        key = _key(change.entry)
        if change.kind == "DELETED":
            self._token_secrets.pop(key, None)
        else:
            self._record(key, change.entry)

    def _account_changed(self, change: Change) -> None:
        for key, wanted in self._token_secrets.items():
            if wanted.account == change.entry.name and key.startswith(f"{change.entry.namespace}/"):
                self._loop.add(key)

    def _record(self, key: str, entry: Entry) -> None:
        found = self._read(entry) if _TYPE in entry.raw else None
        if found is None:
            self._token_secrets.pop(key, None)
        else:
            self._token_secrets[key] = found
            self._loop.add(key)

    def _read(self, entry: Entry) -> _TokenSecret | None:
        """Parse a token secret; return None for any other secret."""
        try:
            document: Any = orjson.loads(entry.raw)
            annotations = document["metadata"].get("annotations") or {}
            if document.get("type") != TYPE or not annotations.get(ACCOUNT_NAME):
                return None
            data = document.get("data") or {}
            names = ("token", "namespace", "ca.crt") if self._authority() else ("token", "namespace")
            filled = all(data.get(name) for name in names)
            return _TokenSecret(annotations[ACCOUNT_NAME], annotations.get(ACCOUNT_UID) or "", filled)
        # another program stored an invalid object, which is ignored
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            log.warning("the stored secret %s cannot be read: %s", _key(entry), fault)
            return None

    async def _reconcile(self, key: str) -> None:
        if key == _ALL:
            await self._read_all()
            return
        namespace, _, name = key.partition("/")
        accounts = self._accounts
        entry, wanted = self._secrets.state.get(namespace, name), self._token_secrets.get(key)
        if entry is None or wanted is None:
            return
        uid = _uid(accounts.state.get(namespace, wanted.account))
        if wanted.uid and wanted.uid != uid:
            await self._verbs.store.fresh(accounts)  # the cache may be outdated, which must not cause a deletion
            if wanted.uid != _uid(accounts.state.get(namespace, wanted.account)):
                await self._delete(entry)
        elif uid and not (wanted.filled and wanted.uid):
            await self._fill(entry, Account(namespace, wanted.account, uid))

    async def _read_all(self) -> None:
        await self._accounts.wait_ready()
        await self._secrets.wait_ready()
        for entry in self._secrets.state.readable():
            self._record(_key(entry), entry)

    async def _fill(self, entry: Entry, account: Account) -> None:
        document: Document = orjson.loads(entry.raw)
        stored = document.get("data") or {}
        data = {  # stored values stay, since another server may have written its own CA bundle
            "ca.crt": stored.get("ca.crt") or _base64(self._authority().decode()) or None,
            "namespace": stored.get("namespace") or _base64(account.namespace),
            "token": stored.get("token") or _base64(self._tokens.secret_token(account, entry.name)),
        }
        wanted = {
            "metadata": {
                "annotations": {ACCOUNT_NAME: account.name, ACCOUNT_UID: account.uid},
                "resourceVersion": str(entry.revision),
            },
            "data": data,
        }
        call = call_of(self._verbs, "patch", entry.namespace, entry.name)
        with retried_conflicts(404, 409):
            await api.patch(self._verbs, call, MERGE, orjson.dumps(wanted))

    async def _delete(self, entry: Entry) -> None:
        uid = orjson.loads(entry.raw)["metadata"].get("uid")
        # the preconditions permit the deletion only in the checked state
        options = DeleteOptions(uid=uid, resource_version=str(entry.revision))
        with retried_conflicts(404, 409):
            await delete(self._verbs, call_of(self._verbs, "delete", entry.namespace, entry.name), options)


def _uid(account: Entry | None) -> str:
    return str(orjson.loads(account.raw)["metadata"].get("uid", "")) if account is not None else ""


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _key(entry: Entry) -> str:
    return f"{entry.namespace}/{entry.name}"
