"""ResourceQuota: the amounts that writes add to the usage, and refused creates.

The writes are creates, updates and retried creates.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.admission.attributes import Attributes
from apiext.admission.quotas import usages
from apiext.auth.user import User
from apiext.meta.names import GroupKind, GroupResource
from apiext.meta.status import StatusError

CONFIG_MAPS, CLAIMS = GroupResource("", "configmaps"), GroupResource("", "persistentvolumeclaims")


def write(operation: str, resource: GroupResource, new: Any, old: Any = None) -> Attributes:
    kind = GroupKind(resource.group, "Kind")
    return Attributes(operation, resource, "v1", kind, "", "n", "x", User("u"), False, new, old)


def quota(hard: dict[str, str], used: dict[str, str], uid: str = "q") -> dict[str, Any]:
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}


def claim(size: str) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"resources": {"requests": {"storage": size}}}}


def test_retried_create_is_charged_once() -> None:
    create = write("CREATE", CONFIG_MAPS, {"metadata": {"name": "x"}})
    first = usages(create, [quota({"count/configmaps": "2"}, {"count/configmaps": "1"})], {})[0]
    assert (first.used, first.amounts) == ({"count/configmaps": "2"}, {"count/configmaps": "1"})
    charged = {"q": first.amounts}
    again = usages(create, [quota({"count/configmaps": "2"}, dict(first.used))], charged)[0]
    assert again == first
    with pytest.raises(StatusError, match="exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2"):
        usages(create, [quota({"count/configmaps": "2"}, dict(first.used))], {})


def test_update_is_charged_the_added_amount() -> None:
    hard = {"requests.storage": "3Gi"}
    grown = write("UPDATE", CLAIMS, claim("2Gi"), claim("1536Mi"))
    assert usages(grown, [quota(hard, {"requests.storage": "1536Mi"})], {})[0].used == {"requests.storage": "2Gi"}
    shrunk = write("UPDATE", CLAIMS, claim("1Gi"), claim("2Gi"))
    assert usages(shrunk, [quota(hard, {"requests.storage": "2Gi"})], {})[0].amounts == {}


def test_error_names_the_first_exceeded_quota() -> None:
    create = write("CREATE", CONFIG_MAPS, {"metadata": {"name": "x"}})
    roomy, full = {"count/configmaps": "9"}, {"configmaps": "1"}
    quotas = [quota(roomy, {"count/configmaps": "0"}, "a"), quota(full, {"configmaps": "1"}, "b")]
    with pytest.raises(StatusError, match="exceeded quota: b, requested: configmaps=1, used: configmaps=1"):
        usages(create, quotas, {})


def test_quota_without_status_usage_refuses_creates() -> None:
    create = write("CREATE", CONFIG_MAPS, {"metadata": {"name": "x"}})
    with pytest.raises(StatusError, match="status unknown for quota: q, resources: configmaps,count/configmaps"):
        usages(create, [quota({"configmaps": "1", "count/configmaps": "1"}, {"configmaps": "0"})], {})
