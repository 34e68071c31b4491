"""System metadata: fields that the server sets, keeps and removes."""

import re
from typing import Any

import pytest

from apiext.meta.generated_names import generate_name
from apiext.verbs import metadata

NOW = "2026-01-02T03:04:05Z"


@pytest.mark.rows("WRI-001")
def test_create_resets_system_metadata() -> None:
    document: dict[str, Any] = {
        "metadata": {
            "name": "a",
            "uid": "mine",
            "creationTimestamp": "1999-01-01T00:00:00Z",
            "deletionTimestamp": "1999-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 3,
            "selfLink": "/x",
        }
    }
    metadata.wipe(document)
    assert document == {"metadata": {"name": "a"}}
    metadata.fill_on_create(document, NOW)
    uid = document["metadata"].pop("uid")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", uid)
    assert document == {"metadata": {"name": "a", "creationTimestamp": NOW}}


@pytest.mark.rows("WRI-002")
@pytest.mark.parametrize(("prefix", "kept"), [("web-", 4), ("x" * 70, 58)])
def test_a_generated_name_is_a_prefix_and_five_characters(prefix: str, kept: int) -> None:
    name = generate_name(prefix)
    assert name[:kept] == prefix[:kept]
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", name[kept:])


@pytest.mark.rows("WRI-004")
def test_update_keeps_omitted_system_metadata() -> None:
    old = {"metadata": {"name": "a", "uid": "u", "creationTimestamp": NOW, "generation": 3, "deletionTimestamp": NOW}}
    new: dict[str, Any] = {"metadata": {"name": "a", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 99}}
    metadata.fill_on_update(new, old)
    assert new == old


@pytest.mark.rows("WRI-004")
def test_update_drops_new_system_metadata() -> None:
    new: dict[str, Any] = {"metadata": {"name": "a", "generation": 9, "selfLink": "/x"}}
    metadata.fill_on_update(new, {"metadata": {"name": "a", "uid": "u"}})
    assert new == {"metadata": {"name": "a", "uid": "u"}}


@pytest.mark.rows("WRI-017")
def test_deletion_mark_increments_generation_once() -> None:
    document: dict[str, Any] = {"metadata": {"generation": 1}}
    metadata.mark_as_deleting(document, NOW)
    wanted = {"generation": 2, "deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}
    assert document["metadata"] == wanted
    metadata.mark_as_deleting(document, "2027-01-01T00:00:00Z")
    assert document["metadata"] == wanted, "a second delete changes nothing"


@pytest.mark.rows("WRI-017")
@pytest.mark.parametrize(
    ("since", "left"),
    [
        ("2026-01-02T03:14:05Z", NOW),
        ("2026-01-02T04:04:06+01:00", NOW),
        ("2026-01-02T02:04:05-01:30", NOW),
        ("2026-01-02T04:00:00+01:00", "2026-01-02T04:00:00+01:00"),
        (NOW, NOW),
        ("2026-01-02T03:04:04Z", "2026-01-02T03:04:04Z"),
        ("soon", "soon"),
    ],
)
def test_second_delete_corrects_future_deletion_timestamp(since: str, left: str) -> None:
    """A later delete corrects a time in the future (upstream: markAsDeleting).

    A clock that was ahead has set this time.
    """
    document: dict[str, Any] = {"metadata": {"generation": 2, "deletionTimestamp": since}}
    metadata.mark_as_deleting(document, NOW)
    assert document["metadata"] == {"generation": 2, "deletionTimestamp": left, "deletionGracePeriodSeconds": 0}


POLICIES: list[tuple[list[str], str, bool | None, list[str]]] = [
    ([], "", None, []),
    (["x"], "", None, ["x"]),
    ([], "Background", None, []),
    (["orphan", "x"], "Background", None, ["x"]),
    ([], "Orphan", None, ["orphan"]),
    ([], "Foreground", None, ["foregroundDeletion"]),
    (["foregroundDeletion"], "Orphan", None, ["orphan"]),
    (["orphan"], "", None, ["orphan"]),
    (["foregroundDeletion"], "", None, ["foregroundDeletion"]),
    (["foregroundDeletion"], "", False, []),
    ([], "", True, ["orphan"]),
    (["orphan"], "", False, []),
]


@pytest.mark.rows("WRI-018")
@pytest.mark.parametrize(("now", "policy", "orphan", "wanted"), POLICIES)
def test_propagation_policy_sets_finalizers(
    now: list[str], policy: str, orphan: bool | None, wanted: list[str]
) -> None:
    assert metadata.propagation_finalizers(now, policy, orphan) == wanted


@pytest.mark.rows("WRI-015")
def test_duplicate_owner_references_are_dropped_and_reported() -> None:
    owner = {"uid": "u1", "name": "a"}
    document: dict[str, Any] = {"metadata": {"ownerReferences": [owner, {"uid": "u2"}, dict(owner)]}}
    assert metadata.dedup_owners(document) == ["u1"]
    assert document["metadata"]["ownerReferences"] == [owner, {"uid": "u2"}]


@pytest.mark.rows("WRI-015")
def test_owner_reference_given_three_times_is_reported_once() -> None:
    owner = {"uid": "u1", "name": "a"}
    document: dict[str, Any] = {"metadata": {"ownerReferences": [owner, {"name": "a", "uid": "u1"}, dict(owner)]}}
    assert metadata.dedup_owners(document) == ["u1"]
    assert document["metadata"]["ownerReferences"] == [owner]
