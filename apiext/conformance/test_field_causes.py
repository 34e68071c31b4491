"""The 422 of an invalid built-in object has the causes of kube-apiserver, in its order.

``field_causes.yaml`` has the answers of kube-apiserver.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import MERGE, Answer, Client
from apiext.conformance.test_builtin_event_rows import spelled

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ADDRESSES = [f"10.0.0.{number}" for number in range(1, 102)]
ROWS = [Case(row) for row in read(Path(__file__).with_name("field_causes.yaml"))]


def causes(answer: Answer) -> list[list[str]]:
    """Return field and message of each cause.

    In a message, ``x*64`` is 64 times x, and ``…`` is a generated suffix.
    """
    if answer.status in (200, 201):
        return []
    found = answer.expect(422)["details"]["causes"]
    return [[cause["field"], shortened(cause["message"])] for cause in found]


def shortened(message: str) -> str:
    text = re.sub("x{20,}", lambda run: f"x*{len(run[0])}", message)
    return re.sub(r'"(A!|v1)\w{5}"', r'"\1…"', text)


@pytest.mark.rows("ERR-09", "ERR-11")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_causes_of_an_invalid_object(api: Client, case: Case) -> None:
    name, body = f"f-{secrets.token_hex(4)}", spelled(case.body)
    metadata = body.get("metadata", {})
    body["metadata"] = metadata if "generateName" in metadata else {"name": name, **metadata}
    if case.put is None and case.patch is None:
        answer = api.post(f"{case.path}?dryRun=All", body)
    else:
        made, changed = api.post(case.path, body).expect(201)["metadata"], f"{case.path}/{name}?dryRun=All"
        if case.put is None:
            answer = api.patch(changed, case.patch, MERGE)
        else:
            named = {"name": name, "resourceVersion": made["resourceVersion"]}
            answer = api.put(changed, {**case.put, "metadata": named})
        api.delete(f"{case.path}/{name}").expect(200)
    wanted = case.causes or []
    found = causes(answer)
    assert [cause[: len(row)] for cause, row in zip(found, wanted, strict=False)] == wanted
    assert len(found) == len(wanted), answer.text


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize(
    ("endpoints", "cause"),
    [
        ([{"addresses": ADDRESSES}], ["endpoints[0].addresses", "Too many: 101: must have at most 100 items"]),
        ([{"addresses": ADDRESSES[:1]}] * 1001, ["endpoints", "Too many: 1001: must have at most 1000 items"]),
        ([{"addresses": ["x"]}] * 1001, ["endpoints", "Too many: 1001: must have at most 1000 items"]),
    ],
    ids=["addresses", "endpoints", "invalid endpoints"],
)
def test_slice_of_too_many_addresses(api: Client, endpoints: list[Any], cause: list[str]) -> None:
    body = {"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": endpoints}
    assert causes(api.post(f"{SLICES}?dryRun=All", body)) == [cause]
