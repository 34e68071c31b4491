"""Numbers out of range or in an unusual form, in patches and applies of built-in kinds."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.http_client import APPLY, Answer, Client

SERVICES = "/api/v1/namespaces/default/services"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def service(api: Client) -> Iterator[str]:
    """Create a service with a port named a; yield the service's name."""
    name = f"s-{secrets.token_hex(4)}"
    spec = {"clusterIP": "None", "ports": [{"name": "a", "port": 80}]}
    api.post(SERVICES, {"metadata": {"name": name}, "spec": spec}).expect(201)
    yield name
    api.delete(f"{SERVICES}/{name}")


def patched(api: Client, name: str, port: dict[str, Any]) -> Answer:
    return api.patch(f"{SERVICES}/{name}", {"spec": {"ports": [port]}}, STRATEGIC, dryRun="All")


def applied(api: Client, name: str, port: dict[str, Any]) -> Answer:
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [port]}}
    return api.patch(f"{SERVICES}/{name}", body, APPLY, fieldManager="me", force="true", dryRun="All")


OF_TEXTS = [  # (value of an IntOrString, error of its decoder)
    (1.5, "json: cannot unmarshal number 1.5 into Go value of type int32"),
    (4294967377, "json: cannot unmarshal number 4294967377 into Go value of type int32"),
    (True, "json: cannot unmarshal bool into Go value of type int32"),
]


@pytest.mark.rows("WRI-007", "KUB-003")
@pytest.mark.parametrize(("number", "text"), OF_TEXTS)
@pytest.mark.needs("/api/v1/namespaces")
def test_type_errors_of_int_or_string(api: Client, service: str, number: Any, text: str) -> None:
    port = {"name": "a", "port": 80, "targetPort": number}
    assert patched(api, service, port).expect(422)["message"].endswith(f": {text}")
    assert applied(api, service, port).expect(400)["message"].endswith(f": {text}")


@pytest.mark.rows("WRI-007", "KUB-003")
@pytest.mark.needs("/api/v1/namespaces")
def test_whole_numbers_such_as_80_0_are_integers(api: Client, service: str) -> None:
    # upstream: a number such as 80.0 becomes an integer in an integer field, and is printed as one in an IntOrString
    for how in patched, applied:
        found = how(api, service, {"name": "a", "port": 80, "targetPort": 8080.0}).expect(200)
        assert found["spec"]["ports"] == [{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 8080}]
    (port,) = applied(api, service, {"name": "a", "port": 80.0}).expect(200)["spec"]["ports"]
    assert port["port"] == 80
    assert "cannot convert float64 to int32" in patched(api, service, {"port": 80.5}).expect(422)["message"]


@pytest.mark.differs("a number that exceeds the range of its type is truncated, not refused")
@pytest.mark.rows("WRI-007", "KUB-003")
@pytest.mark.parametrize("number", [2147483648, 4294967377, -2147483649])
@pytest.mark.needs("/api/v1/namespaces")
def test_numbers_that_exceed_int32(api: Client, service: str, number: int) -> None:
    text = f": number {number} does not fit into int32"
    assert patched(api, service, {"port": number}).expect(422)["message"].endswith(text)
    refused = applied(api, service, {"port": number}).expect(400)
    assert refused["message"].endswith(text)
    assert refused["reason"] == "BadRequest"


@pytest.mark.differs("a number that exceeds the range of its type is truncated, not refused")
@pytest.mark.rows("WRI-007", "KUB-003")
@pytest.mark.parametrize(
    ("number", "shown"), [(2**63, "9.223372036854776e+18"), (10**20, "1e+20"), (-1e300, "-1e+300")]
)
def test_numbers_that_exceed_int64(api: Client, number: float, shown: str) -> None:
    text = f": number {shown} does not fit into int64"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "generation": number}}
    path = "/api/v1/namespaces/default"
    assert api.patch(path, body, STRATEGIC, dryRun="All").expect(422)["message"].endswith(text)
    refused = api.patch(path, body, APPLY, dryRun="All", fieldManager="m", force="true").expect(400)
    assert refused["message"].endswith(text)


@pytest.mark.differs("a strategic merge patch with the key 80.0 adds an item beside the item with the key 80")
@pytest.mark.rows("KUB-003")
@pytest.mark.needs("/api/v1/namespaces")
def test_list_items_are_found_by_keys_such_as_80_0(api: Client, service: str) -> None:
    (port,) = patched(api, service, {"port": 80.0, "name": "b"}).expect(200)["spec"]["ports"]
    assert (port["port"], port["name"]) == (80, "b")
