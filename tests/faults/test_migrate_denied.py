"""`apiext migrate` while a webhook denies writes.

With every status code, storedVersions keeps the old version.
"""

from __future__ import annotations

import pytest

from apiext.conformance.support import admission_webhook
from apiext.conformance.support.admission import VALIDATING, configured, rule, webhook
from apiext.conformance.support.definitions import Resource
from apiext.conformance.support.http_client import DEFINITIONS, Client
from tests.faults import test_migrate
from tests.faults.test_migrate import define, kept_in, migrate, move, named, stored_versions
from tests.support.processes import Etcd, Server

etcd, server, api = test_migrate.etcd, test_migrate.server, test_migrate.api
running, hook = admission_webhook.fixtures()


@pytest.mark.rows("VER-014", "ADM-005")
@pytest.mark.parametrize("status", [403, 404, 409])
def test_denied_write_fails_the_migration_for_every_status(
    server: Server, api: Client, etcd: Etcd, hook: admission_webhook.Webhook, status: int
) -> None:
    widgets = define(api)
    for number in range(3):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    hook.answer = admission_webhook.deny("not now", code=status)
    about = rule(Resource(api, widgets.group, "widgets", "Widget", "v2"), operations=("UPDATE",))
    with configured(api, VALIDATING, webhook("w", hook.client_config(), about)):
        code, events, _ = migrate(server, f"widgets.{widgets.group}")
    told = named(events, "failed")
    assert (code, len(told), {"not now" in it["message"] for it in told}) == (1, 3, {True})
    assert (kept_in(etcd, widgets), stored_versions(api, widgets)) == ({"v1"}, ["v1", "v2"])
    code, _, _ = migrate(server, f"widgets.{widgets.group}")
    assert (code, kept_in(etcd, widgets), stored_versions(api, widgets)) == (0, {"v2"}, ["v2"])
    api.delete(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)
