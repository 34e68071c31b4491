"""Requests to a conversion webhook, and validation of its responses."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiext.catalog.converted import NeedsConversion
from apiext.conformance.support.cases import Case, case_name, load
from apiext.conversion import review
from apiext.conversion.review import ConversionError
from apiext.meta import limits

ASKED: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
ORIGINAL: dict[str, Any] = {
    **ASKED,
    "metadata": {
        "name": "a", "namespace": "d", "uid": "u", "generation": 3,
        "managedFields": [{"manager": "m"}], "labels": {"x": "1"},
    },
}  # fmt: skip
ANSWERED = review.ConvertedObjects(b"", [])
ABOUT = "conversion webhook for example.com/v1, Kind=Widget "


def conversion_request(document: dict[str, Any], sort: bool = True) -> NeedsConversion:
    """Return the request for the conversion of a document."""
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS if sort else 0)
    return NeedsConversion(text, "example.com/v2", "key", lambda *_: None)


@pytest.mark.rows("VER-004")
@pytest.mark.parametrize(
    ("supported", "chosen"), [(("v1", "v1beta1"), "v1"), (("v1beta1", "v1"), "v1beta1"), (("v7", "v1"), "v1")]
)
def test_first_supported_review_version_is_used(supported: tuple[str, ...], chosen: str) -> None:
    assert review.review_version(supported) == chosen


@pytest.mark.rows("VER-004")
def test_no_supported_review_version_is_an_error() -> None:
    with pytest.raises(ConversionError, match=r"^no supported conversion review versions$"):
        review.review_version(("v7",))


@pytest.mark.rows("VER-004")
def test_review_request_has_form_of_upstream() -> None:
    found = orjson.loads(review.request("v1beta1", "u", [conversion_request(ASKED), conversion_request(ORIGINAL)]))
    assert found == {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "example.com/v2", "objects": [ASKED, ORIGINAL]},
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
    }


@pytest.mark.rows("VER-005", "VER-006", "VER-013")
@pytest.mark.parametrize("case", load(__file__, "answers"), ids=case_name)
def test_review_responses_are_validated(case: Case) -> None:
    raw = case["raw"].encode() if "raw" in case else orjson.dumps(case["answer"])
    if "objects" in case:
        assert list(review.all_objects(case.version, "u", [conversion_request(ASKED)], raw)) == case["objects"]
        return
    with pytest.raises(ConversionError) as failed:
        review.all_objects(case.version, "u", [conversion_request(ASKED)], raw)
    assert str(failed.value) == ABOUT + case.error
    assert failed.value.failure == (review.PARTIAL if " returned " in str(failed.value) else review.MALFORMED)


@pytest.mark.rows("VER-006", "VER-007")
@pytest.mark.parametrize("case", load(__file__, "objects"), ids=case_name)
def test_converted_objects_are_validated(case: Case) -> None:
    index = 1 if case.count == 2 else -1
    given = case["given"]
    if case.labels:
        given = {**given, "metadata": {**given["metadata"], "labels": case.labels}}
    if case.object is not None:
        assert review.accepted(conversion_request(ORIGINAL), ANSWERED, given, index)[0] == case.object
        return
    with pytest.raises(ConversionError) as failed:
        review.accepted(conversion_request(ORIGINAL), ANSWERED, given, index)
    assert str(failed.value) == (case.exact or ABOUT + case.error)
    assert failed.value.failure == review.INVALID_OBJECT


@pytest.mark.rows("VER-007")
@pytest.mark.parametrize("case", load(__file__, "metadata"), ids=case_name)
def test_only_labels_and_annotations_may_be_converted(case: Case) -> None:
    bare = {"apiVersion": "example.com/v1", "kind": "Widget"}
    original = {**bare, "metadata": case["original"]} if "original" in case else bare
    given = {**bare, "apiVersion": "example.com/v2", "metadata": case["converted"]}
    if case.error is None:
        assert review.accepted(conversion_request(original), ANSWERED, given, -1)[0]["metadata"] == case.found
        return
    for index, where in ((-1, "metadata"), (1, "metadata in object at index 1")):
        with pytest.raises(ConversionError) as failed:
            review.accepted(conversion_request(original), ANSWERED, dict(given), index)
        assert str(failed.value) == f"{ABOUT}returned invalid {where}: {case.error}"


@pytest.mark.rows("VER-007")
@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"labels": {"some/non-qualified/label": "x"}}, 'metadata.labels: Invalid value: "some/non-qualified/label"'),
        ({"labels": {"foo": "üäö"}}, 'metadata.labels: Invalid value: "üäö"'),
        ({"labels": {"foo": "x" * 64}}, "must be no more than 63 bytes"),
        (
            {"annotations": {"foo": "x" * (limits.MAX_ANNOTATIONS + 1)}},
            "metadata.annotation: Too long: may not be more",
        ),
        ({"labels": {"a/b/c": "x", "d/e/f": "x"}}, "[metadata.labels: Invalid value"),
    ],
)
def test_invalid_labels_and_annotations_are_errors(metadata: dict[str, Any], text: str) -> None:
    bare = {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": metadata}
    with pytest.raises(ConversionError) as failed:
        review.accepted(
            conversion_request({**bare, "apiVersion": "example.com/v1", "metadata": {}}), ANSWERED, bare, -1
        )
    assert text in str(failed.value)


@pytest.mark.rows("VER-011")
@pytest.mark.parametrize(
    ("document", "empty"),
    [
        ({"apiVersion": "a/v1", "kind": "B"}, True),
        (ASKED, False),
        ({"apiVersion": "a/v1", "metadata": {}}, False),
        ({}, False),
    ],
)
def test_only_objects_without_fields_are_empty(document: dict[str, Any], empty: bool) -> None:
    assert review.is_empty(document) is empty
