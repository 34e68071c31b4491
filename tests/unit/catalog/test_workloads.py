"""Preparation of workloads: jobs with generated names, and fields of features that are off."""

from typing import Any

import pytest

from apiext.catalog.builtin.workloads import name_job, prepare_job


def job(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", **metadata}, "spec": {"template": {"spec": {}}}}


@pytest.mark.parametrize("labels", [None, {"mine": "1"}])
def test_a_job_takes_each_generated_name(labels: dict[str, str] | None) -> None:
    new = prepare_job(job(generateName="j-", **({"labels": labels} if labels else {})), None)
    assert "selector" not in new["spec"]
    for name in ("j-1", "j-2"):
        new["metadata"]["name"] = name
        found = name_job(new)
        both = {"controller-uid": "u", "job-name": name}
        expected = both | {f"batch.kubernetes.io/{key}": value for key, value in both.items()}
        assert found["spec"]["template"]["metadata"]["labels"] == expected
        assert found["metadata"]["labels"] == (labels or expected)
        assert found["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}


def test_a_label_of_the_client_stays() -> None:
    new = job(name="j")
    new["spec"]["template"]["metadata"] = {"labels": {"job-name": "other"}}
    assert prepare_job(new, None)["spec"]["template"]["metadata"]["labels"]["job-name"] == "other"
