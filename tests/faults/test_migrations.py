"""StorageVersionMigrations during writes of clients, killed midway: no object is lost."""

from __future__ import annotations

import base64
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import admission_webhook
from apiext.conformance.support.admission import VALIDATING, configured, rule, webhook
from apiext.conformance.support.conversion_webhook import answer, crontab, failed, running_webhook, serve_crontabs
from apiext.conformance.support.definitions import Resource, condition, definition, establish, fresh_group, is_true
from apiext.conformance.support.http_client import DEFINITIONS, TABLE, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.faults.test_migrate import OBJECTS, SIZE, TEXT, Writers, define, migrate, move, schema, stored_versions
from tests.support.processes import Etcd, Server, running_etcd, running_server, start_server, stop

PATH = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"
running, hook = admission_webhook.fixtures()
ASKED = "--runtime-config=storagemigration.k8s.io/v1beta1=true"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that the tests read."""
    with running_etcd(tmp_path_factory.mktemp("migrations-etcd")) as started:
        yield started


def flags(etcd: Etcd, prefix: str) -> list[str]:
    return ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", f"--etcd-prefix=/{prefix}", ASKED]


@pytest.fixture(scope="module")
def server(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with ``etcd``."""
    with running_server(flags(etcd, "all"), tmp_path_factory.mktemp("migrations")) as started:
        yield started


@pytest.fixture
def api(server: Server) -> Client:
    """A client of ``server``."""
    return Client(server.url)


def ask(api: Client, name: str, group: str, resource: str = "widgets") -> Any:
    body = {"metadata": {"name": name}, "spec": {"resource": {"group": group, "resource": resource}}}
    return api.post(PATH, body).expect(201)


def over(api: Client, name: str, within: float = 60.0) -> dict[str, Any]:
    """Wait until a migration has ended, and return it."""

    def ended() -> dict[str, Any] | None:
        seen: dict[str, Any] = api.get(f"{PATH}/{name}").expect(200)
        running = condition(seen, "Running")
        return seen if running is not None and running["status"] == "False" else None

    return until(ended, f"{name} is over", within)


def read_condition(document: dict[str, Any], kind: str) -> tuple[str, str, str]:
    found = condition(document, kind)
    assert found is not None, f"nothing is told of {kind}"
    return found["status"], found["reason"], found["message"]


def definition_condition(api: Client, widgets: Resource) -> tuple[str, str, str]:
    return read_condition(api.get(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200), "StorageMigrating")


def stored_objects(etcd: Etcd, widgets: Resource, prefix: str = "all") -> dict[str, tuple[str, int]]:
    """Return name of an object → (stored version, number of writes)."""
    start = f"/{prefix}/{widgets.group}/{widgets.plural}/".encode()
    asked = {"key": base64.b64encode(start).decode(), "range_end": base64.b64encode(start[:-1] + b"0").decode()}
    found: dict[str, tuple[str, int]] = {}
    for kv in etcd.call("kv/range", asked).get("kvs", []):
        stored = json.loads(base64.b64decode(kv["value"]))
        name = base64.b64decode(kv["key"]).decode().rpartition("/")[2]
        found[name] = stored["apiVersion"].rpartition("/")[2], int(kv["version"])
    return found


def create_outdated_widgets(api: Client, objects: int = OBJECTS) -> Resource:
    """Return widgets stored in v1, while v2 has become the storage version."""
    widgets = define(api)
    for number in range(objects):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    return widgets


def versions_of(etcd: Etcd, widgets: Resource, prefix: str = "all") -> set[str]:
    return {version for version, _ in stored_objects(etcd, widgets, prefix).values()}


@pytest.mark.rows("VER-002", "VER-014", "DIS-102")
def test_migrated_objects_allow_removal_of_the_old_version(api: Client, etcd: Etcd) -> None:
    widgets = create_outdated_widgets(api, 30)
    name = f"m-{widgets.group}"
    made = ask(api, name, widgets.group)
    with api.watch(PATH, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        steps = []
        while not steps or len(steps[-1]) < 2 or steps[-1]["Running"] == "True":
            seen = watch.next("MODIFIED")["object"]
            steps.append({it["type"]: it["status"] for it in seen["status"]["conditions"]})
    assert steps == [
        {"Running": "True"},
        {"Running": "True"},  # the second event has the start time
        {"Running": "True", "Succeeded": "True"},
        {"Running": "False", "Succeeded": "True"},
    ]
    done = api.get(f"{PATH}/{name}").expect(200)
    assert read_condition(done, "Succeeded") == ("True", "StorageVersionMigrationSucceeded", "")
    assert read_condition(done, "Running") == ("False", "MigrationCompleted", "Migration completed")
    assert int(done["status"]["resourceVersion"]) < int(done["metadata"]["resourceVersion"])
    owners = {(it["manager"], it.get("subresource")) for it in done["metadata"]["managedFields"]}
    assert ("kube-controller-manager", "status") in owners
    text = "The migration has succeeded and the stored versions have been updated"
    assert definition_condition(api, widgets) == ("False", "MigrationSucceeded", text)
    assert stored_versions(api, widgets) == ["v2"]
    assert set(stored_objects(etcd, widgets).values()) == {("v2", 2)}
    assert {it["metadata"]["generation"] for it in api.get(widgets.path()).expect(200)["items"]} == {1}
    table = api.get(f"{PATH}/{name}", {"Accept": TABLE}).expect(200)
    assert table["rows"][0]["cells"] == [name, f"widgets.{widgets.group}", "Succeeded"]
    versions = api.get(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)["spec"]["versions"]
    api.patch(f"{DEFINITIONS}/widgets.{widgets.group}", {"spec": {"versions": versions[1:]}}).expect(200)


@pytest.mark.rows("VER-002", "VER-014", "VER-015")
def test_migration_beside_writers_loses_no_update(api: Client, etcd: Etcd) -> None:
    widgets = define(api)
    for number in range(300):
        widgets.create(f"w{number}", size=number)
    writers = Writers(api, widgets)
    writers.start()
    move(api, widgets, "v2")
    try:
        ask(api, f"m-{widgets.group}", widgets.group)
        done = over(api, f"m-{widgets.group}", 900)
    finally:
        writers.finish()
    assert is_true(done, "Succeeded")
    assert writers.wrong[:3] == []
    assert writers.total() == writers.counted, "an update was lost"
    counters = {f"counter-{number}" for number in range(3)}
    assert stored_objects(etcd, widgets).keys() == {f"w{number}" for number in range(300)} | writers.made | counters
    assert versions_of(etcd, widgets) == {"v2"}
    assert stored_versions(api, widgets) == ["v2"]


@pytest.mark.rows("VER-002", "VER-014")
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_next_server_continues_the_migration(etcd: Etcd, tmp_path: Path, how: signal.Signals) -> None:
    prefix = f"next-{how.name.lower()}"
    first = start_server(tmp_path / "first", flags(etcd, prefix))
    assert first.process is not None
    second: Server | None = None
    try:
        api = Client(first.url)
        widgets = create_outdated_widgets(api)
        ask(api, "m", widgets.group)
        until(lambda: "v2" in versions_of(etcd, widgets, prefix), "some moved")
        first.process.send_signal(how)
        began = time.monotonic()
        first.process.wait(30)
        prompt(time.monotonic() - began, 3)
        before = stored_objects(etcd, widgets, prefix)
        assert 0 < sum(version == "v2" for version, _ in before.values()) < OBJECTS
        second = start_server(tmp_path / "second", flags(etcd, prefix))
        api = Client(second.url)
        begun = api.get(f"{PATH}/m").expect(200)["status"]["resourceVersion"]
        done = over(api, "m")
        assert is_true(done, "Succeeded")
        assert done["status"]["resourceVersion"] == begun
        assert stored_versions(api, widgets) == ["v2"]
        assert set(stored_objects(etcd, widgets, prefix).values()) == {("v2", 2)}, "what was done was done again"
    finally:
        for process in (first.process, second.process if second else None):
            if process is not None:
                stop(process)


@pytest.mark.rows("RV-017", "VER-014")
def test_several_servers_write_each_object_once(etcd: Etcd, tmp_path: Path) -> None:
    told = flags(etcd, "pair")
    with running_server(told, tmp_path / "one") as one, running_server(told, tmp_path / "two") as two:
        api = Client(one.url)
        widgets = create_outdated_widgets(api)
        ask(Client(two.url), "m", widgets.group)
        assert is_true(over(api, "m"), "Succeeded")
        assert stored_versions(api, widgets) == ["v2"]
        assert set(stored_objects(etcd, widgets, "pair").values()) == {("v2", 2)}


@pytest.mark.rows("VER-014")
def test_stored_versions_stay_after_a_definition_edit(api: Client, etcd: Etcd) -> None:
    widgets = create_outdated_widgets(api)
    name = f"m-{widgets.group}"
    ask(api, name, widgets.group)
    until(lambda: "v2" in versions_of(etcd, widgets), "some moved")
    move(api, widgets, "v1")  # objects that were already migrated now have an old version
    assert is_true(over(api, name), "Succeeded")
    text = "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
    assert definition_condition(api, widgets) == ("False", "MigrationSucceeded", text)
    assert stored_versions(api, widgets) == ["v1", "v2"]
    ask(api, f"{name}-again", widgets.group)
    assert is_true(over(api, f"{name}-again"), "Succeeded")
    assert stored_versions(api, widgets) == ["v1"]
    assert versions_of(etcd, widgets) == {"v1"}


@pytest.mark.rows("VER-003")
def test_migration_keeps_fields_missing_in_the_new_version(server: Server, api: Client, etcd: Etcd) -> None:
    old = schema(size=SIZE, legacy=TEXT)
    widgets = define(api, old=old)
    widgets.create("rich", size=2, legacy="of value")
    move(api, widgets, "v2", old=old)
    name = f"m-{widgets.group}"
    ask(api, name, widgets.group)
    message = (
        "migration encountered unhandled error: default/rich: apiext migrate: v2 does not have spec.legacy: "
        "see --allow-loss"
    )
    assert read_condition(over(api, name), "Failed") == ("True", "StorageVersionMigrationFailed", message)
    # upstream prunes v1 here: it handles a failed migration like a successful one
    assert definition_condition(api, widgets) == ("False", "MigrationFailed", "The migration has failed")
    assert stored_versions(api, widgets) == ["v1", "v2"]
    assert stored_objects(etcd, widgets) == {"rich": ("v1", 1)}
    assert migrate(server, "--allow-loss", f"widgets.{widgets.group}")[0] == 0
    assert stored_versions(api, widgets) == ["v2"]


@pytest.mark.rows("VER-014")
def test_second_migration_keeps_stored_versions_until_its_end(api: Client, etcd: Etcd) -> None:
    """The stored versions are pruned at the end of the second migration, as upstream.

    Upstream's second apply of the condition no longer contains the versions of the first apply.
    """
    widgets = create_outdated_widgets(api)
    name = f"m-{widgets.group}"
    ask(api, name, widgets.group)
    over(api, name)
    move(api, widgets, "v1")
    ask(api, f"{name}-back", widgets.group)
    until(lambda: "v1" in versions_of(etcd, widgets), "some moved")
    assert stored_versions(api, widgets) == ["v2", "v1"]
    assert is_true(over(api, f"{name}-back"), "Succeeded")
    assert stored_versions(api, widgets) == ["v1"]


@pytest.mark.rows("VER-008", "VER-014")
def test_migration_waits_for_an_unavailable_webhook(api: Client, tmp_path: Path) -> None:
    with running_webhook(tmp_path) as hook:
        hook.answer = answer(crontab)
        crontabs = serve_crontabs(api, hook)
        for number in range(20):
            crontabs.create("v1beta1", f"c{number}", hostPort=f"host{number}:80")
        path = f"{DEFINITIONS}/crontabs.{crontabs.group}"
        there = api.get(path).expect(200)
        for version in there["spec"]["versions"]:
            version["storage"] = version["name"] == "v1"
        api.patch(path, {"spec": {"versions": there["spec"]["versions"]}}).expect(200)
        hook.answer = failed("out to lunch")
        name = f"m-{crontabs.group}"
        ask(api, name, crontabs.group, "crontabs")
        until(lambda: api.get(f"{PATH}/{name}").expect(200)["status"].get("resourceVersion"), "it began")
        pause(1)
        assert [it["type"] for it in api.get(f"{PATH}/{name}").expect(200)["status"]["conditions"]] == ["Running"]
        assert api.get(path).expect(200)["status"]["storedVersions"] == ["v1beta1", "v1"]
        hook.answer = answer(crontab)
        assert is_true(over(api, name), "Succeeded")
        assert api.get(path).expect(200)["status"]["storedVersions"] == ["v1"]


@pytest.mark.rows("VER-014", "ADM-005")
@pytest.mark.parametrize("status", [403, 409])
def test_denied_write_fails_the_migration_for_every_status(
    api: Client, etcd: Etcd, hook: admission_webhook.Webhook, status: int
) -> None:
    widgets = create_outdated_widgets(api, 3)
    name = f"m-{widgets.group}"
    hook.answer = admission_webhook.deny("not now", code=status)
    about = rule(Resource(api, widgets.group, "widgets", "Widget", "v2"), operations=("UPDATE",))
    with configured(api, VALIDATING, webhook("w", hook.client_config(), about)):
        ask(api, name, widgets.group)
        ended = over(api, name)
    assert read_condition(ended, "Failed")[0] == "True"
    assert (versions_of(etcd, widgets), stored_versions(api, widgets)) == ({"v1"}, ["v1", "v2"])


@pytest.mark.rows("VER-014", "ADM-005")
def test_migration_retries_denials_with_status_404(api: Client, etcd: Etcd, hook: admission_webhook.Webhook) -> None:
    widgets = create_outdated_widgets(api, 3)
    name = f"m-{widgets.group}"
    hook.answer = admission_webhook.deny("not now", code=404)
    about = rule(Resource(api, widgets.group, "widgets", "Widget", "v2"), operations=("UPDATE",))
    with configured(api, VALIDATING, webhook("w", hook.client_config(), about)):
        ask(api, name, widgets.group)
        until(lambda: len(hook.reviews) > 3, "it is tried again")
        assert (versions_of(etcd, widgets), stored_versions(api, widgets)) == ({"v1"}, ["v1", "v2"])
    assert is_true(over(api, name), "Succeeded")
    assert (versions_of(etcd, widgets), stored_versions(api, widgets)) == ({"v2"}, ["v2"])


def test_migrations_of_a_resource_run_one_at_a_time_oldest_first(api: Client) -> None:
    widgets = create_outdated_widgets(api, 200)
    names = [f"{letter}-{widgets.group}" for letter in "zab"]
    seen: list[set[str]] = []
    version = api.get(PATH).expect(200)["metadata"]["resourceVersion"]
    ask(api, names[0], widgets.group)
    until(lambda: is_true(api.get(f"{PATH}/{names[0]}").expect(200), "Running"), "the first runs")
    for name in names[1:]:
        ask(api, name, widgets.group)
    over(api, names[2])
    running: set[str] = set()
    with api.watch(PATH, resourceVersion=version) as watch:
        while len(seen) < 6:
            changed = watch.next("ADDED", "MODIFIED")["object"]
            name = changed["metadata"]["name"]
            before = set(running)
            (running.add if is_true(changed, "Running") else running.discard)(name)
            if running != before:
                seen.append(set(running))
    assert seen == [{names[0]}, set(), {names[1]}, set(), {names[2]}, set()]


def test_migrations_of_built_in_resources_succeed(api: Client) -> None:
    api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}}).expect(201)
    for group, resource in (("", "configmaps"), ("apiextensions.k8s.io", "customresourcedefinitions")):
        ask(api, f"m-{resource}", group, resource)
        assert is_true(over(api, f"m-{resource}"), "Succeeded")


def test_migration_fails_for_resources_without_update(api: Client) -> None:
    ask(api, "m-reviews", "authentication.k8s.io", "tokenreviews")
    message = (
        'resource "authentication.k8s.io/v1, Resource=tokenreviews" does not support discovery operations: '
        "[update patch list]"
    )
    assert read_condition(over(api, "m-reviews"), "Failed") == ("True", "StorageVersionMigrationFailed", message)


def test_migration_waits_until_its_resource_is_served(api: Client) -> None:
    group = fresh_group()
    ask(api, f"m-{group}", group)
    until(lambda: is_true(api.get(f"{PATH}/m-{group}").expect(200), "Running"), "it runs")
    establish(api, definition(group))
    assert is_true(over(api, f"m-{group}"), "Succeeded")


def test_deleted_migration_stops(api: Client, etcd: Etcd) -> None:
    widgets = create_outdated_widgets(api)
    name = f"m-{widgets.group}"
    ask(api, name, widgets.group)
    until(lambda: "v2" in versions_of(etcd, widgets), "some moved")
    api.delete(f"{PATH}/{name}").expect(200)
    pause(0.2)
    left = stored_objects(etcd, widgets)
    assert "v1" in {version for version, _ in left.values()}
    pause(0.5)
    assert stored_objects(etcd, widgets) == left
    assert stored_versions(api, widgets) == ["v1", "v2"]


@pytest.mark.long
def test_migration_of_a_missing_resource_fails_after_a_minute(api: Client, etcd: Etcd) -> None:
    widgets = create_outdated_widgets(api, 3_000)
    gone, failure = f"m-{widgets.group}", "StorageVersionMigrationFailed"
    ask(api, "m-nothing", "no.example.com")
    ask(api, "m-dated", "none.example.com")
    ask(api, gone, widgets.group)
    until(lambda: "v2" in versions_of(etcd, widgets), "some moved")
    api.delete(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)
    # the state when the definition is deleted after the migration has begun
    api.patch(f"{PATH}/m-dated/status", {"status": {"resourceVersion": "1"}}).expect(200)
    nothing = ("True", failure, "resource does not exist in discovery")
    assert read_condition(over(api, "m-nothing", 90), "Failed") == nothing
    missing = ("True", failure, "migration encountered unhandled error: unable to obtain GVR from discovery")
    assert read_condition(over(api, "m-dated", 90), "Failed") == missing
    ended = over(api, gone, 90)  # success if it migrated all objects before the definition was deleted
    assert condition(ended, "Succeeded") or read_condition(ended, "Failed") == missing
