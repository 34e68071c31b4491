"""Random UUIDs."""

from __future__ import annotations

from uuid import RFC_4122, UUID

from apiext.meta.uids import Uids


def test_uids_are_version_4_and_differ() -> None:
    uids = Uids()
    found = [uids.next() for _ in range(1_000)]  # more than one batch
    assert len(set(found)) == 1_000
    assert all((str(UUID(text)), UUID(text).version, UUID(text).variant) == (text, 4, RFC_4122) for text in found)
    assert {text[19] for text in found} == set("89ab")
