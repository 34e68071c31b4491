"""Prevent a role or a binding from granting permissions that its writer does not have.

See AUT-003. This applies only in the authorization mode RBAC.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from apiext.auth.authorization import EVERYTHING, Attributes, Rule, denial
from apiext.auth.coverage import TooManyPermissions, described, quoted, uncovered, uncovering
from apiext.auth.rbac import GROUP, KINDS, Policy, iter_rules, reference_in
from apiext.documents.document import View
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.scheduling.loop_budget import LoopBudget, collect
from apiext.text.quotes import go_quote
from apiext.verbs.call import Call, Verbs
from apiext.verbs.errors import translated

_NEED_ALL = "must have cluster-admin privileges to use the aggregationRule"
_GARBAGE_COLLECTION_FIELDS = frozenset(("ownerReferences", "finalizers", "managedFields", "selfLink"))

Check = Callable[[Verbs, Policy, Call, View, View | None], Awaitable[None]]


async def check(verbs: Verbs, policy: Policy, call: Call, new: View, old: View | None) -> None:
    """Raise a 403 for a role or binding with permissions that the user may not grant.

    ``old`` is None on create. Users may grant the permissions that they have. A user with permission for the verb
    escalate on a role may write any rules into this role. A user with permission for the verb bind on a role may bind
    this role. Members of system:masters may grant all permissions. Raise a 404 if the role of a binding does not exist.
    """
    check = _CHECKS.get(call.served.names.group_resource)
    if check is not None and not call.user.is_master:
        await check(verbs, policy, call, new, old)


def may_create(verbs: Verbs, call: Call) -> None:
    """Raise a 403 if an update or apply would create an object that the user may not create.

    See AUT-004.
    """
    if verbs.policy is None or call.verb == "create":
        return
    served = call.served
    place = (served.names.resource, call.endpoint.name, call.namespace or "", call.name)
    attributes = Attributes(call.user, "create", "", served.names.group, served.names.version, *place)
    decision = verbs.authorizer(attributes)
    if not decision.allowed:
        raise denial(attributes, decision.reason)


async def _role(verbs: Verbs, policy: Policy, call: Call, new: View, old: View | None) -> None:
    place = (call.served.names.resource, "", call.namespace or "", call.name)
    if verbs.authorizer(Attributes(call.user, "escalate", "", GROUP, "*", *place)):
        return
    if old is not None and _only_for_garbage_collection(new, old):
        return
    await _load_newest(verbs, policy)
    await _confirm(policy, call, new, await collect(iter_rules(new)))
    if _aggregates(new) or (old is not None and _aggregates(old)):
        granted = policy.grants(call.user, "")
        if uncovered(granted.roles, EVERYTHING.rules):
            raise status.forbidden(call.served.names.group_resource, _name(new), _NEED_ALL)


async def _binding(verbs: Verbs, policy: Policy, call: Call, new: View, old: View | None) -> None:
    namespace = call.namespace or ""
    reference = reference_in(new, namespace)
    resource = KINDS.get(reference.kind)
    if resource is None or (old is not None and _only_for_garbage_collection(new, old)):
        return  # validation rejects a binding to an unknown kind
    group = (new.get("roleRef") or {}).get("apiGroup", "")
    if verbs.authorizer(Attributes(call.user, "bind", "", group, "*", resource, "", namespace, reference.name)):
        return
    await _load_newest(verbs, policy)
    role = policy.role(reference)
    if role is None:
        # the 404 about a role names the resource of the binding
        # upstream: reports the resource of the request
        raise status.not_found(call.served.names.group_resource, reference.name)
    await _confirm(policy, call, new, role.rules)


_CHECKS: Mapping[GroupResource, Check] = {
    GroupResource(GROUP, "roles"): _role,
    GroupResource(GROUP, "clusterroles"): _role,
    GroupResource(GROUP, "rolebindings"): _binding,
    GroupResource(GROUP, "clusterrolebindings"): _binding,
}


async def _load_newest(verbs: Verbs, policy: Policy) -> None:
    """Load the newest roles and bindings of the store."""
    with translated():
        await verbs.store.fresh()
    await policy.settled()


async def _confirm(policy: Policy, call: Call, new: View, rules: Sequence[Rule]) -> None:
    """Raise a 403 unless the user has all permissions of the rules."""
    user = call.user
    granted = policy.grants(user, call.namespace or "")
    loop_budget, missing = LoopBudget(), list[Rule]()
    try:
        for piece in uncovering(granted.roles, rules):
            if piece is not None:
                missing.append(piece)
            await loop_budget.pause()
    except TooManyPermissions as error:
        raise status.forbidden(call.served.names.group_resource, _name(new), f"{error} cannot be granted") from error
    if not missing:
        return
    text = (
        f"user {go_quote(user.name)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions not "
        "currently held:\n"
    ) + "\n".join(described(missing))
    absent = list(dict.fromkeys(one.missing(call.served.names.resource) for one in granted.absent))
    if absent:
        listed = absent[0] if len(absent) == 1 else f"[{', '.join(absent)}]"
        text += f"; resolution errors: [{listed}]"
    raise status.forbidden(call.served.names.group_resource, _name(new), text)


def _name(document: View) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def _aggregates(role: View) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_for_garbage_collection(new: View, old: View) -> bool:
    """Return whether the write only changes metadata for garbage collection."""
    return _other_fields(new) == _other_fields(old)


def _other_fields(document: View) -> dict[str, object]:
    metadata = {
        key: value
        for key, value in (document.get("metadata") or {}).items()
        if key not in _GARBAGE_COLLECTION_FIELDS and value
    }
    return {key: value for key, value in {**document, "metadata": metadata}.items() if value}
