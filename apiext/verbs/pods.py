"""Bind pods to nodes, and evict pods within their disruption budgets.

Upstream: registry/core/pod/storage.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from apiext.auth.user import MASTERS, User
from apiext.documents.document import Document, View, clone
from apiext.meta import status
from apiext.meta.fields import FieldError, invalid, not_supported, required
from apiext.meta.names import GroupKind, GroupResource
from apiext.meta.options import DeleteOptions, OptionsError, WriteOptions
from apiext.meta.selectors import LabelSelector, SelectorError
from apiext.meta.status import StatusError
from apiext.meta.syntax import dns1123_subdomain
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.store import Entry, GuardChanged, RevisionChanged
from apiext.verbs import delete as deletes
from apiext.verbs import identity, read, threads, write
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.commit import Decision, Put, Unconfirmed, cached_state, commit
from apiext.verbs.errors import invalid_object
from apiext.verbs.objects import absent, collection_of

PODS = GroupResource("", "pods")
BUDGETS = GroupResource("policy", "poddisruptionbudgets")
_BINDINGS = GroupResource("", "pods/binding")
_BUDGET = GroupResource("policy", "poddisruptionbudget")
_CAUSE = "DisruptionBudget"
_SERVER = User("system:apiserver", (MASTERS,))
_MANAGER = "kube-apiserver"
_MOST_DISRUPTED = 2000
_TRIES, _PAUSE = 20, 0.5  # attempts, and seconds between them (upstream: EvictionsRetry)
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

Permit = Callable[[View], Awaitable[None]]
"""Calls the validating admission plug-ins for a Binding or Eviction; raises StatusError if one denies it."""
Change = Callable[[Document], None]
"""Changes a pod in place; raises StatusError to reject the write."""


async def bind(verbs: Verbs, call: Call, binding: Document, permit: Permit, options: WriteOptions) -> Document:
    """Assign a pod to the node that a Binding names."""
    metadata, target = binding["metadata"], binding.get("target") or {}
    name = metadata.get("name") or ""
    if call.name and name != call.name:
        raise status.bad_request("name in URL does not match name in Binding object")
    if not name:
        raise status.bad_request("Name parameter required.")
    if errors := _target_errors(target):
        texts = [f"{error.field}: {error.body}" for error in errors]
        raise status.unknown(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    await permit(binding)
    uid, revision = metadata.get("uid") or "", metadata.get("resourceVersion") or ""
    call = _of_pod(verbs, call, name)

    def assign(pod: Document) -> None:
        _check_precondition(verbs, call, pod, uid, revision)
        spec, own = pod["spec"], pod["metadata"]
        if own.get("deletionTimestamp"):
            raise status.conflict(_BINDINGS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise status.conflict(_BINDINGS, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise status.conflict(_BINDINGS, name, f"pod {name} has non-empty .spec.schedulingGates")
        spec["nodeName"] = target["name"]
        pod["status"].pop("nominatedNodeName", None)
        for part in ("annotations", "labels"):
            if metadata.get(part):
                own[part] = {**(own.get(part) or {}), **metadata[part]}
        _set_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, verbs.clock())

    await _change(verbs, call, assign, dry_run=options.dry_run)
    return _success()


def _target_errors(target: View) -> list[FieldError]:
    kind, name = target.get("kind") or "", target.get("name") or ""
    errors = [not_supported("target.kind", kind, ("Node", "<empty>"))] if kind not in ("", "Node") else []
    if not name:
        return [*errors, required("target.name")]
    return [*errors, *(invalid("target.name", name, fault) for fault in dns1123_subdomain(name))]


def _check_precondition(verbs: Verbs, call: Call, pod: View, uid: str, revision: str) -> None:
    """Raise a 409 if the pod does not have the required uid or resourceVersion."""
    own = pod["metadata"]
    for what, wanted, found in (
        ("UID", uid, own.get("uid", "")),
        ("ResourceVersion", revision, own["resourceVersion"]),
    ):
        if wanted and wanted != found:
            fault = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            key = verbs.store.keys.object(PODS, call.namespace or "", call.name)
            raise status.conflict(PODS, call.name, invalid_object(key, fault))


# --- eviction ---


async def evict(verbs: Verbs, call: Call, eviction: Document, permit: Permit, options: WriteOptions) -> Document:
    """Delete a pod if its disruption budget allows it."""
    if (eviction["metadata"].get("name") or "") != call.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    wanted = _delete_options(call, eviction.get("deleteOptions"), options)
    await permit(eviction)
    call = _of_pod(verbs, call, call.name)
    for number in range(_TRIES):
        if number:
            await asyncio.sleep(_PAUSE)
        if await _evicted(verbs, call, wanted):
            return _success()
    raise status.conflict(PODS, call.name, status.MODIFIED)


async def _evicted(verbs: Verbs, call: Call, wanted: DeleteOptions) -> bool:
    """Delete a pod within its budget; return False if another writer changed the pod meanwhile.

    If the client requires a resourceVersion, raise a 409 after such a change. If the pod was not ready and its eviction
    did not count as a disruption, raise a 429. Raise the 403 or 429 of ``_decrement``, and a 500 for two budgets.
    """
    entry, pod = await _read(verbs, call)
    deletes.check_preconditions(call, pod, wanted)
    exact = wanted.resource_version is not None
    found = pod.get("status") or {}
    budget = ""
    if not _needs_no_budget(pod):
        budgets = await _budgets(verbs, call, pod)
        if len(budgets) > 1:
            raise status.unknown(_TWO_BUDGETS)
        if budgets:
            budget = budgets[0]["metadata"]["name"]
            if _is_ready(found) or not _allows_unhealthy(budgets[0]):
                await _decrement(verbs, call, budget, dry_run=wanted.dry_run)
                budget = ""
            else:
                wanted = replace(wanted, resource_version=wanted.resource_version or str(entry.revision))
    elif found.get("phase") == "Pending" and not pod["metadata"].get("deletionTimestamp") and not exact:
        # If the pod changes meanwhile, the eviction starts again: the pod may be ready then, so that its budget
        # applies.
        wanted = replace(wanted, resource_version=str(entry.revision))
    try:
        await _delete(verbs, call, wanted)
    except StatusError as error:
        if error.code != 409 or exact or wanted.resource_version is None:
            raise
        if budget:
            raise _too_many(budget) from error
        return False
    return True


def _delete_options(call: Call, given: Document | None, options: WriteOptions) -> DeleteOptions:
    """Return the options of the delete; raise a 400 or 422 for invalid options."""
    rest = {name: value for name, value in (given or {}).items() if name not in ("kind", "apiVersion")}
    try:
        found = DeleteOptions.from_document(rest)
    except OptionsError as error:
        raise status.bad_request(str(error)) from error
    if found.ignore_store_read_error:
        text = "can not be set for pod eviction, try after removing the option"
        path = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential"
        raise status.invalid(GroupKind("policy", "Eviction"), call.name, [invalid(path, True, text)])
    if errors := found.errors(collection=False):
        raise status.invalid(found.kind, "", errors)
    asked = ("All",) if options.dry_run else ()
    return replace(found, dry_run_values=found.dry_run_values or asked)


def _needs_no_budget(pod: View) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _is_ready(found: View) -> bool:
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in found.get("conditions") or ())


def _allows_unhealthy(budget: View) -> bool:
    """Report whether a pod that is not ready may be evicted without counting a disruption."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    found = budget.get("status") or {}
    desired = found.get("desiredHealthy") or 0
    return desired > 0 and (found.get("currentHealthy") or 0) >= desired


async def _budgets(verbs: Verbs, call: Call, pod: View) -> list[View]:
    """Return the disruption budgets that select a pod."""
    resource = verbs.catalog.current.resource(BUDGETS.group, BUDGETS.resource)
    if resource is None:
        return []
    call = replace(call, resource=resource, served=resource.versions["v1"], name="")
    collection = collection_of(verbs, call)
    await collection.wait_ready()
    await verbs.store.fresh(collection)
    labels = pod["metadata"].get("labels") or {}
    found: list[View] = []
    loop_budget = LoopBudget()
    for entry in collection.state.entries(call.namespace or ""):
        budget = call.served.codec.decode(entry.raw, entry.revision)
        try:
            selector = LabelSelector.from_document((budget.get("spec") or {}).get("selector") or {})
        except SelectorError:
            continue  # an invalid selector selects nothing
        if (budget.get("spec") or {}).get("selector") is not None and selector.matches(labels):
            found.append(budget)
        await loop_budget.pause()
    return found


async def _decrement(verbs: Verbs, call: Call, name: str, *, dry_run: bool) -> None:
    """Count a disruption in the status of a budget.

    Raise a 403 or 429 if the budget allows no disruption.
    """
    resource = verbs.catalog.current.resource(BUDGETS.group, BUDGETS.resource)
    assert resource is not None, "it has just been listed"
    served = resource.versions["v1"]
    of_budget = replace(
        call, verb="update", resource=resource, served=served, endpoint=served.endpoints["status"], name=name,
        query={}, user=_SERVER, manager=_MANAGER, warnings=[], trail=None, size=0, exact=False,
    )  # fmt: skip

    def count(shown: View) -> Document:
        budget: Document = clone(shown)
        _check_allowed(budget)
        found = budget["status"]
        found["disruptionsAllowed"] -= 1
        if not found["disruptionsAllowed"]:
            _set_insufficient(found, verbs.clock())
        found["disruptedPods"] = {**(found.get("disruptedPods") or {}), call.name: verbs.clock()}
        return budget

    options = WriteOptions("UpdateOptions", dry_run_values=("All",) if dry_run else ())
    change = write.Update(verbs, of_budget, count, options, unconditional=True)
    await write.update(verbs, of_budget, change.decide, change.renew)


def _check_allowed(budget: View) -> None:
    """Raise StatusError if a budget currently allows no disruption."""
    metadata, found = budget["metadata"], budget.get("status") or {}
    name, allowed = metadata["name"], found.get("disruptionsAllowed") or 0
    if (found.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        raise _too_many(name)
    if allowed < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
    if len(found.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _forbidden(name, text, "too many pending evictions not confirmed by PDB controller")
    if allowed:
        return
    conditions = (one for one in found.get("conditions") or () if one.get("type") == "DisruptionAllowed")
    condition: View = next(conditions, {})
    condition_text = condition.get("message") if condition.get("status") == "False" else ""
    current, desired = found.get("currentHealthy") or 0, found.get("desiredHealthy") or 0
    text = f"The disruption budget {name} does not allow evicting pods currently"
    if condition_text and condition.get("reason") == "SyncFailed":
        text += f" because it failed sync: {condition_text}"
    elif current <= desired:
        text = f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
    elif condition_text:
        text += f" ({condition.get('reason')}): {condition_text}"
    raise _refused(text, 0)


def _set_insufficient(found: Document, now: str) -> None:
    wanted: Document = {"type": "DisruptionAllowed", "status": "False"}
    if found.get("observedGeneration"):
        wanted["observedGeneration"] = found["observedGeneration"]
    _set_condition(found, {**wanted, "reason": "InsufficientPods", "message": ""}, now, probed=False)


def _too_many(name: str) -> StatusError:
    return _refused(f"The disruption budget {name} is still being processed by the server.", 10)


def _refused(text: str, seconds: int) -> StatusError:
    details: dict[str, Any] = {"causes": [{"reason": _CAUSE, "message": text}]}
    return StatusError(
        429, "TooManyRequests", _VIOLATED, {**details, "retryAfterSeconds": seconds} if seconds else details
    )


def _forbidden(name: str, text: str, cause: str) -> StatusError:
    cause_text = f"The disruption budget {name} does not allow evicting pods currently: {cause}"
    return status.forbidden(_BUDGET, name, text, [{"reason": _CAUSE, "message": cause_text}])


async def _delete(verbs: Verbs, call: Call, options: DeleteOptions) -> None:
    """Delete a pod, after setting a condition that contains the reason."""
    if not options.dry_run:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }

        def mark(pod: Document) -> None:
            deletes.check_preconditions(call, pod, options)
            _set_condition(pod["status"], condition, verbs.clock())

        marked = await _change(verbs, call, mark, dry_run=False)
        if options.resource_version is not None and marked.entry is not None:
            options = replace(options, resource_version=str(marked.entry.revision))
    await deletes.delete(verbs, call, options)


# --- pods ---


def _of_pod(verbs: Verbs, call: Call, name: str) -> Call:
    """Return the call with a pod as its object."""
    resource = verbs.catalog.current.resource("", PODS.resource)
    if resource is None:
        raise status.not_found(PODS, name)
    served = resource.versions["v1"]
    return replace(call, resource=resource, served=served, endpoint=served.endpoints[""], name=name, size=0)


async def _read(verbs: Verbs, call: Call) -> tuple[Entry, Document]:
    entry = await read.get(verbs, call, "")
    return entry, await threads.run(call, call.served.codec.decode, entry.raw, entry.revision)


async def _change(verbs: Verbs, call: Call, change: Change, *, dry_run: bool) -> Outcome:
    """Change a stored pod without admission and without an entry in its managedFields.

    Upstream does the same.
    """
    identity.check_segment(call.name)

    async def decide(entry: Entry | None) -> Decision:
        if entry is None:
            raise absent(call) from RevisionChanged(None)
        pod = await threads.run(call, call.served.codec.decode, entry.raw, entry.revision)
        pod.setdefault("status", {})
        change(pod)
        pod["metadata"].pop("resourceVersion", None)
        raw = await threads.run(call, call.served.codec.to_store, pod)
        if dry_run or raw == entry.raw:
            return Unconfirmed(Outcome(200, entry=entry))
        return Put((entry.namespace, entry.name), entry.revision, raw)

    async def renew(_: GuardChanged | None) -> None:
        """Return None: a pod does not depend on a definition."""

    return await commit(verbs, call, partial(cached_state, verbs, call), decide, renew)


def _set_condition(found: Document, condition: View, now: str, *, probed: bool = True) -> None:
    """Set a condition in a status; its transition time changes only with its status."""
    conditions: Sequence[Document] = found.get("conditions") or ()
    before = next((one for one in conditions if one.get("type") == condition["type"]), None)
    since = before.get("lastTransitionTime") if before and before.get("status") == condition["status"] else None
    times = {"lastProbeTime": None} if probed else {}
    made = {**condition, **times, "lastTransitionTime": since or now}
    found["conditions"] = [made if one is before else one for one in conditions]
    if before is None:
        found["conditions"].append(made)


def _success() -> Document:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


Action = Callable[[Verbs, Call, Document, Permit, WriteOptions], Awaitable[Document]]
ACTIONS: Mapping[str, Action] = {"binding": bind, "eviction": evict}
"""``Endpoint.review``, such as "eviction" → the function that handles requests of this endpoint."""
