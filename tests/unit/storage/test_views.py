"""Which views an entry remembers: those that take more than putting in a resourceVersion."""

from __future__ import annotations

import pytest

from apiext.storage.store import Entry

RAW = (
    b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z",'
    b'"generation":1,"name":"a","namespace":"default","uid":"0f6e"},"spec":{}}\n'
)


def shown(raw: bytes, revision: int) -> bytes:
    return raw[:-1].replace(b'"uid"', b'"resourceVersion":"%d","uid"' % revision)


@pytest.mark.rows("VER-003")
@pytest.mark.parametrize(("version", "made"), [(b"v1", 2), (b"v2", 1), (b"v1beta1", 1)])
def test_a_view_of_another_version_is_remembered(version: bytes, made: int) -> None:
    calls: list[int] = []

    def viewer(raw: bytes, revision: int) -> bytes:
        calls.append(revision)
        return shown(raw, revision).replace(b"/v1", b"/" + version)

    entry = Entry("default", "a", 7, RAW)
    assert entry.view(viewer) == entry.view(viewer)
    assert len(calls) == made  # a splice is as quickly done again
