"""Writes with several faults get the errors of kube-apiserver, in its order.

``ordered_faults.yaml`` has the answers of kube-apiserver.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import MERGE, Client

ROWS = [Case(row) for row in read(Path(__file__).with_name("ordered_faults.yaml"))]
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ADDRESSES = [f"10.0.0.{number}" for number in range(1, 102)]


@pytest.mark.rows("DIS-102")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_errors_of_several_faults(api: Client, case: Case) -> None:
    if case.patch is None:
        assert errors(api.post(f"{case.path}?dryRun=All", _named("a", case.body)).expect(422)) == case.errors
        return
    name = f"f-{secrets.token_hex(4)}"
    api.post(case.path, _named(name, case.body)).expect(201)
    try:
        refused = api.patch(f"{case.path}/{name}?dryRun=All", case.patch, MERGE).expect(422)
    finally:
        api.delete(f"{case.path}/{name}")
    assert errors(refused) == case.errors


@pytest.mark.rows("DIS-102")
@pytest.mark.parametrize(
    ("endpoints", "fault"),
    [
        ([{"addresses": ADDRESSES}], "endpoints[0].addresses: Too many: 101: must have at most 100 items"),
        ([{"addresses": ADDRESSES[:1]}] * 1001, "endpoints: Too many: 1001: must have at most 1000 items"),
        ([{"addresses": ["x"]}] * 1001, "endpoints: Too many: 1001: must have at most 1000 items"),
    ],
    ids=["addresses", "endpoints", "invalid endpoints"],
)
def test_slice_of_too_many_addresses(api: Client, endpoints: list[Any], fault: str) -> None:
    body = {"addressType": "IPv4", "endpoints": endpoints}
    assert errors(api.post(f"{SLICES}?dryRun=All", _named("a", body)).expect(422)) == [fault]


def errors(refused: dict[str, Any]) -> list[str]:
    return [f"{cause['field']}: {cause['message']}" for cause in refused["details"]["causes"]]


def _named(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, **body}
