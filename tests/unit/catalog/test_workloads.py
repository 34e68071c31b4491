"""Preparation of workloads: jobs with generated names, and fields of disabled features."""

from typing import Any

import pytest

from apiext.catalog.builtin.disabled_fields import TABLES, drop
from apiext.catalog.builtin.workloads import name_job, prepare_job, stored_job
from apiext.go_types.rows import Row, rows
from apiext.go_types.tables import types_of
from apiext.go_types.typed import List, Map, Struct


def job(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", **metadata}, "spec": {"template": {"spec": {}}}}


@pytest.mark.parametrize("labels", [None, {"mine": "1"}])
def test_job_labels_follow_each_generated_name(labels: dict[str, str] | None) -> None:
    new = prepare_job(job(generateName="j-", **({"labels": labels} if labels else {})), None)
    assert "selector" not in new["spec"]
    for name in ("j-1", "j-2"):
        new["metadata"]["name"] = name
        found = name_job(new)
        both = {"controller-uid": "u", "job-name": name}
        expected = both | {f"batch.kubernetes.io/{key}": value for key, value in both.items()}
        assert found["spec"]["template"]["metadata"]["labels"] == expected
        assert (found["metadata"].get("labels"), stored_job(found)["metadata"]["labels"]) == (
            labels,
            labels or expected,
        )
        assert found["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}


def test_job_keeps_labels_of_the_client() -> None:
    new = job(name="j")
    new["spec"]["template"]["metadata"] = {"labels": {"job-name": "other"}}
    assert prepare_job(new, None)["spec"]["template"]["metadata"]["labels"]["job-name"] == "other"


def has_field(found: Any, names: list[str]) -> bool:
    """Report whether a Go type has the field at a path.

    Lists are skipped, and ``*`` is the values of a map.
    """
    for name in names:
        while isinstance(found, List):
            found = found.item
        if name == "*":
            assert isinstance(found, Map)
            found = found.item
        elif isinstance(found, Struct) and name in found.fields:
            found = found.fields[name].type
        else:
            return False
    return True


def pod(signal: str | None, mode: int | None) -> dict[str, Any]:
    return {
        "spec": {
            "containers": [{"name": "c", "lifecycle": {"stopSignal": signal} if signal else None}],
            "volumes": [{"emptyDir": {} if mode is None else {"mode": mode}}],
        }
    }


@pytest.mark.parametrize(
    ("old", "kept"),
    [
        (None, pod(None, None)),
        (pod(None, None), pod(None, None)),
        (pod("SIGINT", None), pod("SIGTERM", None)),
        (pod(None, 0), pod(None, 7)),
        (pod("SIGINT", 0), pod("SIGTERM", 7)),
    ],
    ids=["new", "unused", "signal", "mode", "both"],
)
def test_disabled_field_is_kept_if_the_stored_object_uses_it(old: Any, kept: Any) -> None:
    new = pod("SIGTERM", 7)
    drop({"spec": "pod"}, new, old)
    for one in (new, kept):
        one["spec"]["containers"][0] = {key: value for key, value in one["spec"]["containers"][0].items() if value}
    assert new == kept


@pytest.mark.parametrize("table", TABLES)
def test_each_drop_table_is_used_by_a_kind(table: str) -> None:
    assert any(table in row.writes.drops.values() for row in rows())


@pytest.mark.parametrize("row", [row for row in rows() if row.writes.drops], ids=lambda row: row.resource)
def test_drop_tables_name_existing_fields(row: Row) -> None:
    for path, table in row.writes.drops.items():
        for paths in TABLES[table].values():
            for field in paths:
                assert has_field(types_of(row.types).root(row.kind), f"{path}.{field}".split(".")), f"{path}.{field}"
