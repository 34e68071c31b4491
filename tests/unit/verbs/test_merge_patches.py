"""Merge patches have equal results on the fast and the general path (WRI-007).

The fast path is for normalized objects. Errors are equal, too.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.auth.user import SUPERUSER
from apiext.catalog.served import ServedResource
from apiext.documents.document import clone
from apiext.meta.status import StatusError
from apiext.verbs import changes
from apiext.verbs.call import Call
from tests.unit.catalog.samples import CLOSED, resource, version, widget
from tests.unit.catalog.test_viewing_laws import UID, widgets

pytestmark = pytest.mark.rows("WRI-007")

ENTRY = {"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "fieldsV1": {"f:spec": {}}}
METADATA: Any = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.sampled_from([{"a": None}, {"b": "c"}, 5]),
        "managedFields": st.sampled_from([[], [{}], None]),
        "uid": st.just("another"),
        "odd": st.just(1),
    },
)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": METADATA | st.none(),
        "spec": st.sampled_from([None, {"replicas": 3}, {"replicas": None}, {"unknown": 1}, {"free": {"a": None}}, 7]),
        "status": st.sampled_from([None, {"a": 1}]),
        "kind": st.sampled_from(["Other", None, 1]),
        "apiVersion": st.sampled_from(["example.com/v9", "other/v1"]),
        "more": st.just(1),
    },
)


def _apply_patch(found: ServedResource, shown: Any, patch: Any, *, exact: bool) -> Any:
    served = found.versions["v1"]
    name = shown["metadata"]["name"]
    call = Call("patch", served, found, served.endpoints["status"], "default", name, {}, SUPERUSER, exact=exact)
    try:
        made: Any = changes.merge_patch_change(call, orjson.dumps(patch), "Warn")(shown)
    except StatusError as error:
        made = error.code, error.message
    return made, call.warnings


@given(widgets(), PATCHES)
def test_fast_path_of_merge_patch_equals_general_path(body: dict[str, Any], patch: dict[str, Any]) -> None:
    found = resource(version("v1", CLOSED, subresources={"status": {}}))
    served = found.versions["v1"]
    body["metadata"] |= {"managedFields": [ENTRY], "namespace": "default"}
    document = served.endpoints[""].prepare(served.model.normalize(body)[0], None)
    raw = served.codec.encode(document)
    shown = served.codec.decode(raw, 5)
    before = clone(shown)
    assert _apply_patch(found, shown, patch, exact=served.codec.is_normalized(raw)) == _apply_patch(
        found, shown, patch, exact=False
    )
    assert shown == before


def test_unchanged_values_are_shared_if_exact() -> None:
    found = resource(version("v1", CLOSED, subresources={"status": {}}))
    shown = widget(UID, spec={"replicas": 1})
    shown["metadata"] |= {"namespace": "default", "managedFields": [ENTRY]}
    for exact in (True, False):
        made, _ = _apply_patch(found, shown, {"status": {}}, exact=exact)
        assert (made["spec"] is shown["spec"]) is exact
        assert made["metadata"] == shown["metadata"]
        assert made["metadata"] is not shown["metadata"]
