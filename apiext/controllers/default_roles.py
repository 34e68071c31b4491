"""The default cluster roles and bindings of RBAC.

Each start of the server creates or completes them. Rules that an administrator has added stay. Default rules that were
removed are added again. A role or binding whose annotation ``autoupdate`` is "false" stays unchanged. Upstream: the
post-start hook rbac/bootstrap-roles.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from apiext.auth.coverage import uncovered
from apiext.auth.rbac import GROUP, Role, document_of, rules_in
from apiext.auth.roles import BINDINGS, ROLES
from apiext.auth.user import AUTHENTICATED, MASTERS, User
from apiext.catalog import builtin
from apiext.config import STATUS_MANAGER
from apiext.controllers.loop import Loop
from apiext.documents.document import Document, View
from apiext.go_types.sources import read_yaml
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.verbs import api, delete
from apiext.verbs.call import Body, Call, Verbs

USER = User("system:apiserver", (MASTERS, AUTHENTICATED))
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_API = f"{GROUP}/v1"


class DefaultRoles:
    """Creates and completes the roles and bindings of default_roles.yaml."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._loop = Loop("default roles", lambda _: self._reconcile(), width=1)
        self._done = asyncio.Event()

    def start(self, group: asyncio.TaskGroup, needed: bool) -> None:
        """Start to write the roles, with retries. If they are not ``needed``, write nothing."""
        if not needed:
            self._done.set()
            return
        self._loop.start(group)
        self._loop.add("")

    async def stop(self) -> None:
        """Cancel running work."""
        await self._loop.stop()

    @property
    def done(self) -> bool:
        """True if all roles and bindings exist, or are not needed."""
        return self._done.is_set()

    async def wait_done(self) -> None:
        """Wait until ``done`` is True."""
        await self._done.wait()

    async def _reconcile(self) -> None:
        roles, bindings = tables()
        for resources, wanted, completed in ((ROLES, roles, completed_role), (BINDINGS, bindings, completed_binding)):
            for document in wanted:
                resource = resources["namespace" in document["metadata"]]
                await self._bring_up_to_date(resource, document, completed)
        self._done.set()

    async def _bring_up_to_date(
        self, resource: GroupResource, wanted: View, completed: Callable[[View, View], Document | None]
    ) -> None:
        """Create or complete an object. After a conflict, the loop retries."""
        store, metadata = self._verbs.store, wanted["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        collection = store.collection(resource)
        if collection is None:
            return  # --runtime-config disables the resource
        await collection.wait_ready()
        entry = collection.state.get(namespace, name) or await store.current(collection, namespace, name)
        if entry is None:
            await self._write(api.create, resource, "create", wanted)
            return
        served = self._verbs.catalog.current.lookup(resource.group, "v1", resource.resource)
        assert served is not None
        stored = served.codec.decode(entry.raw, entry.revision)
        if (stored["metadata"].get("annotations") or {}).get(AUTOUPDATE) == "false":
            return
        # the roleRef is immutable, so the binding is deleted and created again
        if stored.get("roleRef") != wanted.get("roleRef"):
            options = DeleteOptions(uid=stored["metadata"].get("uid", ""))
            await delete.delete(self._verbs, self._call(resource, "delete", namespace, name), options)
            await self._write(api.create, resource, "create", wanted)
        elif (change := completed(stored, wanted)) is not None:
            await self._write(api.update, resource, "update", change)

    async def _write(
        self, write: Callable[[Verbs, Call, Body], Any], resource: GroupResource, verb: str, document: View
    ) -> None:
        metadata = document["metadata"]
        raw = orjson.dumps(document)
        call = self._call(resource, verb, metadata.get("namespace", ""), metadata["name"] if verb == "update" else "")
        await write(self._verbs, call, Body(orjson.loads(raw), [], "application/json", raw))

    def _call(self, resource: GroupResource, verb: str, namespace: str, name: str) -> Call:
        catalog = self._verbs.catalog.current
        found = catalog.resource(resource.group, resource.resource)
        served = catalog.lookup(resource.group, "v1", resource.resource)
        assert found is not None
        assert served is not None
        return Call(verb, served, found, served.endpoints[""], namespace or None, name, {}, USER, STATUS_MANAGER)


def tables() -> tuple[list[Document], list[Document]]:
    """Return the default roles and bindings of default_roles.yaml.

    A row with a namespace becomes a Role or RoleBinding, any other row a ClusterRole or ClusterRoleBinding.
    """
    table = read_yaml(Path(builtin.__file__).with_name("default_roles.yaml"))
    return [_role(row) for row in table["roles"]], [_binding(row) for row in table["bindings"]]


def _metadata(name: str, row: Mapping[str, Any]) -> Document:
    place = {"namespace": row["namespace"]} if "namespace" in row else {}
    labels = {**_LABELS, **row.get("labels", {})}
    return {"name": name, **place, "labels": labels, "annotations": {AUTOUPDATE: "true"}}


def _kind(kind: str, row: Mapping[str, Any]) -> str:
    return kind if "namespace" in row else f"Cluster{kind}"


def _role(row: Mapping[str, Any]) -> Document:
    role: Document = {
        "apiVersion": _API,
        "kind": _kind("Role", row),
        "metadata": _metadata(row["name"], row),
        "rules": row.get("rules"),
    }
    if "aggregates" in row:
        selectors = [{"matchLabels": {label: "true"}} for label in row["aggregates"]]
        role["aggregationRule"] = {"clusterRoleSelectors": selectors}
    return role


def _binding(row: Mapping[str, Any]) -> Document:
    return {
        "apiVersion": _API,
        "kind": _kind("RoleBinding", row),
        "metadata": _metadata(row.get("name", row["role"]), row),
        "roleRef": {"apiGroup": GROUP, "kind": _kind("Role", row), "name": row["role"]},
        "subjects": row["subjects"],
    }


def completed_role(stored: View, wanted: View) -> Document | None:
    """Return a stored role completed with the wanted rules, selectors, labels and annotations.

    If the wanted role has no aggregationRule, remove that of the stored role. Return None if nothing changes.
    """
    missing = uncovered([Role(rules_in(stored))], rules_in(wanted))
    change: Document = {**stored, "metadata": _marked(stored, wanted)}
    if missing:
        change["rules"] = [*(stored.get("rules") or ()), *map(document_of, missing)]
    if "aggregationRule" not in wanted:
        change.pop("aggregationRule", None)
    else:
        have = (stored.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
        more = [one for one in wanted["aggregationRule"]["clusterRoleSelectors"] if one not in have]
        if more:
            change["aggregationRule"] = {"clusterRoleSelectors": [*have, *more]}
    return None if change == stored else change


def completed_binding(stored: View, wanted: View) -> Document | None:
    """Return a stored binding completed with the wanted subjects, labels and annotations.

    Return None if nothing is missing.
    """
    have: Sequence[View] = stored.get("subjects") or ()
    more = [one for one in wanted["subjects"] if one not in have]
    change: Document = {**stored, "metadata": _marked(stored, wanted)}
    if more:
        change["subjects"] = [*have, *more]
    return None if change == stored else change


def _marked(stored: View, wanted: View) -> Document:
    """Return the metadata of a stored object completed with the wanted labels and annotations."""
    metadata = {**stored["metadata"]}
    for field in ("labels", "annotations"):
        metadata[field] = {**wanted["metadata"][field], **(metadata.get(field) or {})}
    return metadata
