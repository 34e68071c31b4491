"""Responses to AdmissionReviews: the fast path, and the slow path with all type checks."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import orjson
import pytest

from apiext.admission.reviews import BadReview, response_of
from apiext.webhooks.reviews import NotAReview

pytestmark = pytest.mark.rows("ADM-009")


def answer(version: str = "v1", **response: Any) -> bytes:
    """Return a response that allows the write, with changed fields."""
    given = {"uid": "u", "allowed": True, **response}
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "response": given})


@pytest.mark.parametrize("more", [{}, {"warnings": ["w"]}, {"auditAnnotations": {"a": "b"}}, {"unknown": 1}])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_allowed_response_is_read_with_optional_fields(version: str, more: dict[str, Any]) -> None:
    found = response_of(answer(version, **more), version, "u", mutating=False)
    assert (found.allowed, found.patch) == (True, b"")
    assert list(found.warnings) == more.get("warnings", [])
    assert found.annotations == more.get("auditAnnotations", {})


@pytest.mark.rows("ADM-010")
@pytest.mark.parametrize(("result", "text"), [
    ({"metadata": "x"}, "string into Go struct field Status.response.status.metadata of type v1.ListMeta"),
    ({"metadata": {"resourceVersion": 4}},
     "number into Go struct field ListMeta.response.status.metadata.resourceVersion of type string"),
    ({"metadata": {"remainingItemCount": "a"}},
     "string into Go struct field ListMeta.response.status.metadata.remainingItemCount of type int64"),
    ({"details": {"retryAfterSeconds": "x"}},
     "string into Go struct field StatusDetails.response.status.details.retryAfterSeconds of type int32"),
])  # fmt: skip
def test_response_status_of_wrong_types_is_an_error(result: dict[str, Any], text: str) -> None:
    with pytest.raises(NotAReview, match=re.escape(f"json: cannot unmarshal {text}") + "$"):
        response_of(answer(allowed=False, status=result), "v1", "u", mutating=False)


@pytest.mark.parametrize(
    ("raw", "error", "text"),
    [
        (answer(allowed=1), NotAReview, "cannot unmarshal number"),
        (answer(uid="w"), BadReview, 'expected response.uid="u", got "w"'),
        (
            answer("v1beta1"),
            NotAReview,
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (answer()[:-1], NotAReview, "couldn't get version/kind; json parse error"),
        (b"[]", NotAReview, "couldn't get version/kind; json parse error"),
    ],
)
def test_malformed_allowed_response_is_an_error(raw: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        response_of(raw, "v1", "u", mutating=False)


def test_response_objects_are_counted_before_decoding() -> None:
    """A response with 8 MB of empty objects occupied half a gigabyte."""
    raw = b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "other": [%b]}' % b",".join(
        [b"{}"] * 2_500_000
    )
    tracemalloc.start()
    try:
        with pytest.raises(NotAReview, match="more than 400000 objects and lists"):
            response_of(raw, "v1", "u", mutating=False)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(raw)
    finally:
        tracemalloc.stop()
