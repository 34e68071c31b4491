"""Entries of managedFields (SSA-003…007, SSA-013…016).

Tests of their order, times, resets, cap, subresources, and of kubectl.
"""

import time
from typing import Any

import orjson
import pytest

from apiext.catalog import endpoints
from apiext.conformance.support.waiting import prompt
from apiext.managedfields import entries, manager, scale
from apiext.managedfields.entries import APPLY, UPDATE, Manager, Owned
from apiext.managedfields.manager import LAST_APPLIED, BadApply
from apiext.managedfields.updater import Conflicts
from apiext.verbs import ownership
from tests.unit.managedfields.support import BASE, applied, configuration, owners_of, updated, writer

LATER = "2026-01-02T00:00:00Z"
A = {"f:a": {}}
SCALE = endpoints.scale({"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"})


@pytest.mark.rows("SSA-003")
def test_entries_are_sorted_by_operation_and_time() -> None:
    managers = {
        Manager("b", UPDATE, "g/v1"): Owned("g/v1", A, "2026-01-01T00:00:00Z"),
        Manager("c", APPLY): Owned("g/v1", A, LATER),
        Manager("a", APPLY): Owned("g/v1", A, LATER),
        Manager("z", APPLY): Owned("g/v1", A, "2026-01-01T00:00:00Z"),
    }
    encoded = entries.encode(managers)
    assert [entry["manager"] for entry in encoded] == ["z", "a", "c", "b"]
    assert entries.decode(encoded) == managers


@pytest.mark.rows("SSA-002")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"operation": "Patch"}, "operation must be `Apply` or `Update`"),
        ({"apiVersion": ""}, "apiVersion must not be empty"),
        ({"fieldsType": ""}, "missing fieldsType in managed fields entry 0"),
        ({"fieldsType": "FieldsV2"}, 'invalid fieldsType "FieldsV2" in managed fields entry 0'),
        ({"fieldsV1": {"q": {}}}, "error decoding set: unsupported element: 'q'"),
    ],
)
def test_invalid_entries_are_reported(change: dict[str, Any], text: str) -> None:
    good = {"manager": "m", "operation": UPDATE, "apiVersion": "g/v1", "fieldsType": "FieldsV1", "fieldsV1": A}
    with pytest.raises(entries.EntryError) as wrong:
        entries.decode([{**good, **change}])
    assert str(wrong.value) == text


@pytest.mark.rows("SSA-007")
@pytest.mark.parametrize("given", [[], [{}]])
def test_empty_managed_fields_reset_all_managers(given: list[Any]) -> None:
    live = updated(None, "m", {"a": 1})
    new = {**live, "metadata": {**live["metadata"], "managedFields": given}}
    assert manager.track(writer("m"), live, new, creating=False) == []
    assert manager.track(writer("m", subresource="status"), live, new, creating=False) != []


@pytest.mark.rows("SSA-007")
def test_invalid_entries_of_a_request_are_ignored() -> None:
    live = updated(None, "m", {"a": 1})
    new = {**live, "metadata": {**live["metadata"], "managedFields": [{"manager": "x"}]}}
    assert manager.track(writer("m"), live, new, creating=False) == live["metadata"]["managedFields"]


@pytest.mark.rows("SSA-006")
def test_an_object_without_managers_is_tracked_from_its_first_apply() -> None:
    live = configuration({"a": 1})
    assert manager.track(writer("m"), live, configuration({"a": 2}), creating=False) == []
    assert set(owners_of(applied(live, "m", {"b": 1}))) == {"before-first-apply", "m"}


@pytest.mark.rows("SSA-006")
def test_the_oldest_of_more_than_ten_updaters_are_merged() -> None:
    live = updated(None, "m00", {"free": {"f00": 1}})
    for number in range(1, 13):
        spec = {"free": {f"f{other:02}": 1 for other in range(number + 1)}}
        live = updated(live, f"m{number:02}", spec, now=f"2026-01-01T00:00:{number:02}Z")
    owners = owners_of(live)
    assert list(owners) == ["ancient-changes", *(f"m{number:02}" for number in range(4, 13))]
    assert set(owners["ancient-changes"]["f:spec"]["f:free"]) == {".", "f:f00", "f:f01", "f:f02", "f:f03"}
    assert live["metadata"]["managedFields"][0]["time"] == "2026-01-01T00:00:03Z"


@pytest.mark.rows("SSA-006")
def test_merging_updaters_of_equal_time_loses_no_field() -> None:
    live = updated(None, "M00", {"free": {"f00": 1}})
    for number in range(1, 25):  # all in one second, so only names determine the order
        spec = {"free": {f"f{other:02}": 1 for other in range(number + 1)}}
        live = updated(live, f"{'M' if number == 20 else 'm'}{number:02}", spec)
    owners = owners_of(live)
    assert len(owners) == 10
    named = [name for owned in owners.values() for name in owned["f:spec"]["f:free"] if name != "."]
    assert sorted(named) == [f"f:f{number:02}" for number in range(25)], "who owned what is merged, and nothing is lost"


@pytest.mark.rows("SSA-015")
def test_update_without_a_change_keeps_its_time() -> None:
    live = updated(None, "m", {"a": 1})
    same = updated(live, "m", {"a": 1}, now=LATER)
    assert same == live
    other = updated(live, "m", {"a": 2}, now=LATER)
    assert other["metadata"]["managedFields"][0]["time"] == LATER
    assert entries.same_but_for_times(live["metadata"]["managedFields"], other["metadata"]["managedFields"])
    more = updated(live, "m", {"a": 1, "b": 1})
    assert not entries.same_but_for_times(live["metadata"]["managedFields"], more["metadata"]["managedFields"])


@pytest.mark.rows("SSA-004", "SSA-005")
def test_names_and_system_fields_have_no_owner() -> None:
    metadata = {"name": "o", "namespace": "n", "uid": "u", "generation": 1, "labels": {"l": "1"}}
    owned = manager.track(writer(""), BASE, {**BASE, "metadata": metadata}, creating=True)
    assert owned[0]["manager"] == "unknown"
    assert owned[0]["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, "f:l": {}}}}


@pytest.mark.rows("SSA-013")
def test_status_update_owns_only_status_fields() -> None:
    live = updated(None, "m", {"a": 1})
    new = {**live, "spec": {"a": 2}, "status": {"p": 1}}
    of_status = writer("m", subresource="status", ignored={"f:spec": {}, "f:metadata": {}})
    found = manager.track(of_status, live, new, creating=False)
    assert [(entry.get("subresource"), entry["fieldsV1"]) for entry in found] == [
        (None, {"f:spec": {".": {}, "f:a": {}}}),
        ("status", {"f:status": {".": {}, "f:p": {}}}),
    ]
    assert str(entries.manager_of("m", UPDATE, "g/v1", "status")) == '"m" with subresource "status" using g/v1'


@pytest.mark.rows("SSA-001")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"apiVersion": "g/v2"}, "invalid object type: g/v2, Kind=K"),
        ({"kind": ""}, "invalid object type: g/v1, Kind="),
        ({"apiVersion": "v1"}, "invalid object type: /v1, Kind=K"),
        ({"metadata": {"managedFields": []}}, "metadata.managedFields must be nil"),
    ],
)
def test_invalid_apply_bodies_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(BadApply) as wrong:
        manager.apply(writer("m"), BASE, {**configuration({"a": 1}), **change}, BASE, force=False)
    assert str(wrong.value) == text


def client_side_applied(spec: dict[str, Any], last: dict[str, Any]) -> Any:
    live = updated(None, "kubectl-client-side-apply", spec)
    live["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(configuration(last)).decode()}
    return live


@pytest.mark.rows("SSA-006")
def test_many_updaters_are_merged_in_little_time() -> None:
    owned = {f"f:a{number:05}": {} for number in range(24_000)}
    managers = {Manager(f"m{name[3:]}", UPDATE, "g/v1"): Owned("g/v1", {"f:spec": {name: {}}}, LATER) for name in owned}
    began = time.process_time()
    found = entries.capped(managers)
    prompt(time.process_time() - began, 1.5)  # copying the merged object for each would take 3 or more
    assert [manager.name for manager in found] == [*(f"m{n}" for n in range(23_991, 24_000)), "ancient-changes"]
    merged = found[Manager("ancient-changes", UPDATE, "g/v1")]
    assert merged.fields == {"f:spec": {name: {} for name in list(owned)[:23_991]}}


@pytest.mark.rows("SSA-016")
def test_kubectl_apply_takes_over_client_side_fields() -> None:
    live = client_side_applied({"a": 1, "b": 1}, {"a": 1})
    after = applied(live, "kubectl", {"a": 2})
    assert after["spec"] == {"a": 2, "b": 1}
    kept = after["metadata"]["annotations"][LAST_APPLIED]
    assert kept == '{"apiVersion":"g/v1","kind":"K","metadata":{"name":"o"},"spec":{"a":2}}\n'
    with pytest.raises(Conflicts) as met:
        applied(live, "kubectl", {"a": 2, "b": 2})
    assert [way for _, way in met.value.paths()] == [("f:spec", "f:b")]
    with pytest.raises(Conflicts):
        applied(live, "other", {"a": 2})


REPLICAS = {"f:spec": {"f:a": {}}}
OTHERS = {"f:spec": {".": {}, "f:b": {}}}


def owner(name: str, operation: str, fields: dict[str, Any], subresource: str = "", since: str = "then") -> Any:
    entry = {"manager": name, "operation": operation, "apiVersion": "g/v1", "fieldsType": "FieldsV1", "time": since}
    found = {**entry, "fieldsV1": fields, "subresource": subresource}
    return {key: value for key, value in found.items() if value}


BOTH = owner("m", UPDATE, {"f:spec": {".": {}, "f:a": {}, "f:b": {}}})
APPLIER = owner("m", APPLY, REPLICAS)
SCALED = owner("k", UPDATE, REPLICAS, "scale", "")


@pytest.mark.rows("SRV-010")
@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        pytest.param([], 2, [], id="no entries"),
        pytest.param([owner("m", UPDATE, OTHERS)], 2, [owner("m", UPDATE, OTHERS)], id="replicas without an owner"),
        pytest.param([BOTH], 2, [SCALED, owner("m", UPDATE, OTHERS)], id="taken over"),
        pytest.param([BOTH], 1, [owner("m", UPDATE, REPLICAS, "", ""), owner("m", UPDATE, OTHERS)], id="two entries"),
        pytest.param([owner("m", UPDATE, REPLICAS, "", ""), owner("m", UPDATE, OTHERS)], 2,
                     [owner("m", UPDATE, OTHERS)], id="last of two entries of one manager"),
        # upstream: a Scale omits zero, so it has no owner
        pytest.param([BOTH], 0, [owner("m", UPDATE, OTHERS)], id="to zero"),
        pytest.param([APPLIER], 2, [SCALED], id="taken from an applier"),
        pytest.param([APPLIER], 1, [APPLIER], id="unchanged count keeps the applier"),
        pytest.param([owner("k", UPDATE, REPLICAS, "scale")], 2, [SCALED], id="scaled again"),
        pytest.param([{**BOTH, "apiVersion": "g/v0"}], 2, [], id="an unknown version"),
        pytest.param([{**BOTH, "apiVersion": "g/v2"}], 2, [{**BOTH, "apiVersion": "g/v2"}], id="version without scale"),
    ],
)  # fmt: skip
def test_owners_of_replicas_after_writes_of_scale(before: Any, count: int, after: Any) -> None:
    # upstream: an updater becomes another manager, since its version differs; an applier stays the same
    paths = {"g/v1": ("spec", "a"), "g/v2": ()}

    def of(replicas: int, owners: Any) -> dict[str, Any]:
        spec = {"replicas": replicas} if replicas else {}
        return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"managedFields": owners}, "spec": spec}

    new = of(count, None)
    ownership.record(ownership.kind_writer(SCALE, "k", "now"), of(1, scale.scale_entries(before, paths)), new)
    assert scale.object_entries(before, new["metadata"].get("managedFields"), paths, "g/v1") == after
