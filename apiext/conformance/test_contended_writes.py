"""Many clients write one object concurrently: each write is stored, none is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, Answer, Client

CLIENTS = 16
LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
Write = Callable[[Resource, int], Answer]


def _apply(widgets: Resource, number: int) -> Answer:
    body = widgets.make("a", **{f"f{number}": number})
    return widgets.api.patch(widgets.path("a"), body, APPLY, fieldManager=f"m{number}")


WRITES: dict[str, Write] = {
    "merge patch": lambda it, number: it.api.patch(it.path("a"), {"spec": {f"f{number}": number}}, MERGE),
    "JSON patch": lambda it, number: it.api.patch(
        it.path("a"), [{"op": "add", "path": f"/spec/f{number}", "value": number}], JSON_PATCH
    ),
    "apply": _apply,
}


@pytest.fixture
def widgets(api: Client) -> Resource:
    """A kind whose spec has no schema, and an object of this kind."""
    found = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": LOOSE}}})
    found.create("a", x=1)
    return found


@pytest.mark.rows("WRI-005")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_each_of_many_writes_of_one_object_is_stored(widgets: Resource, write: Write) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [it.expect(200) for it in pool.map(lambda number: write(widgets, number), range(CLIENTS))]
    revisions = [int(it["metadata"]["resourceVersion"]) for it in answers]
    assert len(set(revisions)) == CLIENTS
    sizes = [len(it["spec"]) for _, it in sorted(zip(revisions, answers, strict=True), key=lambda one: one[0])]
    assert sizes == list(range(2, CLIENTS + 2)), "each write adds a field to the object of the write before it"
    stored = widgets.api.get(widgets.path("a")).expect(200)
    assert len(stored["spec"]) == CLIENTS + 1


@pytest.mark.rows("WRI-005", "WRI-016")
def test_patches_concurrent_with_a_delete_are_stored_or_a_404(widgets: Resource) -> None:
    def write(number: int) -> Answer:
        if number == CLIENTS // 2:
            return widgets.api.delete(widgets.path("a"))
        return WRITES["merge patch"](widgets, number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        codes = [it.status for it in pool.map(write, range(CLIENTS))]
    assert codes[CLIENTS // 2] == 200
    assert set(codes) <= {200, 404}
    assert widgets.api.get(widgets.path("a")).status == 404
