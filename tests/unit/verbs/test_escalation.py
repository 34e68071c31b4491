"""The escalation check of a role yields to the event loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from apiext.auth.rbac import Policy, binding_in, role_in
from apiext.auth.user import authenticated
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs.escalation import _CHECKS
from tests.support.strain import turns_beside

ROLES = GroupResource("rbac.authorization.k8s.io", "roles")
MANY = 8_000


def role(verb: str) -> dict[str, Any]:
    """Return a role with many rules, each for one name."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}
    rules = [{**rule, "resourceNames": [f"n{number}"]} for number in range(MANY)]
    return {"metadata": {"name": "many"}, "rules": rules}


@pytest.mark.rows("AUT-003")
@pytest.mark.parametrize("verb", ["get", "list"])
async def test_escalation_check_yields_to_event_loop(verb: str) -> None:
    policy = Policy()
    policy.put_role("d", "mine", role_in(role("get")))
    alice = {"kind": "User", "name": "alice"}
    policy.put_binding(
        "d", "mine", binding_in("d", "mine", {"roleRef": {"kind": "Role", "name": "mine"}, "subjects": [alice]})
    )

    async def fresh() -> None:
        """Do nothing: the roles are current."""

    verbs = SimpleNamespace(authorizer=policy, store=SimpleNamespace(fresh=fresh))
    served = SimpleNamespace(names=SimpleNamespace(resource="roles", group_resource=ROLES))
    call = SimpleNamespace(user=authenticated("alice"), namespace="d", name="many", served=served)
    check = _CHECKS[ROLES](cast(Any, verbs), policy, cast(Any, call), role(verb), None)
    if verb == "get":
        assert (await turns_beside(check))[1] > 3
        return
    with pytest.raises(StatusError) as refused:
        await check
    assert refused.value.message.count("\n") == MANY
