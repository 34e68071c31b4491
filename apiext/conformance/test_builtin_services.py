"""Services: defaults, warnings and errors, as in a table of kube-apiserver's answers."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import MERGE, Client

SERVICES = "/api/v1/namespaces/default/services"
ROWS = [Case(row) for row in read(Path(__file__).with_name("builtin_services.yaml"))]
SHOWN = frozenset((
    "type", "ports", "sessionAffinity", "sessionAffinityConfig", "externalTrafficPolicy", "internalTrafficPolicy",
    "allocateLoadBalancerNodePorts", "ipFamilies", "ipFamilyPolicy", "clusterIPs",
))  # fmt: skip
ADDRESSES = frozenset(
    ("ipFamilies", "ipFamilyPolicy", "clusterIPs")
)  # tested by tests/conformance/test_service_addresses.py


def shown(spec: dict[str, Any], *, headless: bool) -> dict[str, Any]:
    found = {name: value for name, value in spec.items() if name in (SHOWN if headless else SHOWN - ADDRESSES)}
    for port in found.get("ports", ()):
        port.pop("nodePort", None)
    return found


@pytest.mark.rows("DEC-002", "ERR-09", "WRI-014")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_a_new_service(api: Client, case: Case) -> None:
    metadata = {"name": f"s-{secrets.token_hex(4)}", "annotations": case.annotations or {}}
    body = {"metadata": metadata, "spec": case.spec}
    answer = api.post(f"{SERVICES}?dryRun=All", body)
    if "IPv6 is not configured on this cluster" in answer.text and ":" in case.spec.get("clusterIP", ""):
        pytest.skip("the server has no IPv6 addresses for services")
    assert answer.warnings == ['299 - "{}"'.format(text.replace('"', '\\"')) for text in case.warns or ()]
    if case.causes is None:
        spec, headless = answer.expect(201)["spec"], case.spec.get("clusterIP") == "None"
        assert (spec.get("clusterIPs") == ["None"]) == headless
        assert shown(spec, headless=headless) == case.shows
    else:
        causes = answer.expect(422)["details"]["causes"]
        assert [[cause["field"], cause["message"]] for cause in causes] == case.causes


@pytest.mark.rows("DEC-002")
def test_addresses_of_a_load_balancer(api: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    api.post(SERVICES, {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}).expect(
        201
    )
    ingress = [{"ip": "1.2.3.4"}, {"hostname": "a.example.com"}, {"ip": "1.2.3.5", "ipMode": "Proxy"}]
    place = f"{SERVICES}/{name}"
    patch = {"status": {"loadBalancer": {"ingress": ingress}}}
    changed = api.request("PATCH", f"{place}/status", patch, {"Content-Type": MERGE}).expect(200)
    long = {"status": {"loadBalancer": {"ingress": [{"ip": "FD00::1"}]}}}
    warned = api.request("PATCH", f"{place}/status?dryRun=All", long, {"Content-Type": MERGE}).warnings
    text = 'IPv6 address \\"FD00::1\\" should be in RFC 5952 canonical format (\\"fd00::1\\")'
    assert warned == [f'299 - "status.loadBalancer.ingress[0]: {text}"']
    assert changed["status"]["loadBalancer"]["ingress"] == [{**ingress[0], "ipMode": "VIP"}, *ingress[1:]]
    api.delete(place).expect(200)


@pytest.mark.differs("a PUT of the status of a missing service creates it")
@pytest.mark.rows("SRV-013", "ERR-02")
def test_a_put_of_the_status_of_a_missing_service_is_a_404(api: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
    for tail, code in (("/status", 404), ("", 201)):
        assert api.put(f"{SERVICES}/{name}{tail}", body).status == code
    api.delete(f"{SERVICES}/{name}").expect(200)


LOWER = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
MODES = 'supported values: "Proxy", "VIP"'


@pytest.mark.rows("DEC-002", "ERR-09")
@pytest.mark.parametrize(
    ("kind", "point", "causes"),
    [
        ("ClusterIP", {"ip": "1.2.3.4"}, {"": "Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}),
        ("NodePort", {}, {"": "Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}),
        ("LoadBalancer", {}, {}),
        ("LoadBalancer", {"ip": "1.2.3.4", "ipMode": ""}, {"ipMode": f'Unsupported value: "": {MODES}'}),
        ("LoadBalancer", {"ip": "1.2.3.4", "ipMode": "x"}, {"ipMode": f'Unsupported value: "x": {MODES}'}),
        ("LoadBalancer", {"ipMode": "x"}, {"ipMode": "Forbidden: may not be specified when `ip` is not set"}),
        ("LoadBalancer", {"ip": "1.2.3.4", "hostname": "a", "ipMode": "Proxy"}, {}),
        ("LoadBalancer", {"hostname": "A_b"}, {"hostname": f'Invalid value: "A_b": {LOWER}'}),
        (
            "LoadBalancer",
            {"hostname": "1.2.3.04"},
            {"hostname": 'Invalid value: "1.2.3.04": must be a DNS name, not an IP address'},
        ),
        ("LoadBalancer", {"hostname": "1.2.3.256"}, {}),
        ("LoadBalancer", {"ip": "1.2.3.256"}, {"ip": f'Invalid value: "1.2.3.256": {NO_ADDRESS}'}),
        ("LoadBalancer", {"ip": "1.2.3.04"}, {"ip": 'Invalid value: "1.2.3.04": must not have leading 0s'}),
    ],
)
def test_load_balancer_addresses_by_type_of_service(
    api: Client, kind: str, point: dict[str, Any], causes: dict[str, str]
) -> None:
    name = f"s-{secrets.token_hex(4)}"
    place = f"{SERVICES}/{name}"
    api.post(SERVICES, {"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}}).expect(201)
    answer = api.patch(f"{place}/status?dryRun=All", {"status": {"loadBalancer": {"ingress": [point]}}}, MERGE)
    path = "status.loadBalancer.ingress"
    told = {cause["field"]: cause["message"] for cause in answer.json.get("details", {}).get("causes", ())}
    assert answer.status == (422 if causes else 200)
    assert told == {f"{path}[0].{part}" if part else path: text for part, text in causes.items()}
    api.delete(place).expect(200)


@pytest.mark.rows("DEC-002")
def test_fields_that_a_headless_service_loses(api: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    place = f"{SERVICES}/{name}"
    made = api.post(SERVICES, {"metadata": {"name": name}, "spec": {"clusterIP": "None"}}).expect(201)
    assert made["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    single = api.patch(f"{place}?dryRun=All", {"spec": {"ipFamilyPolicy": "SingleStack"}}, MERGE).expect(200)
    assert single["spec"]["ipFamilies"] == ["IPv4"]
    elsewhere = {"type": "ExternalName", "externalName": "a.example.com"}
    assert api.patch(f"{place}?dryRun=All", {"spec": elsewhere}, MERGE).expect(200)["spec"] == {
        **elsewhere,
        "sessionAffinity": "None",
    }
    other = api.patch(place, {"spec": {**elsewhere, "ipFamilies": ["IPv6"]}}, MERGE).expect(422)
    assert [cause["field"] for cause in other["details"]["causes"]] == ["spec.ipFamilies"]
    api.delete(place).expect(200)


@pytest.mark.rows("DEC-002", "WRI-014")
def test_a_service_that_becomes_a_cluster_ip_loses_its_node_ports(api: Client) -> None:
    port = 30_000 + secrets.randbelow(2_768)
    body = {"metadata": {"name": f"s-{secrets.token_hex(4)}"}}
    path = f"{SERVICES}/{body['metadata']['name']}"
    given = {"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 1, "nodePort": port}]}
    api.post(SERVICES, {**body, "spec": given}).expect(201)
    other = [{"port": 1, "protocol": "TCP", "nodePort": port - 1 if port > 30_000 else port + 1}]
    api.patch(path, {"spec": {"type": "ClusterIP", "ports": other}}, MERGE).expect(422)
    found = api.patch(path, {"spec": {"type": "ClusterIP"}}, MERGE).expect(200)["spec"]
    assert ["nodePort" in port for port in found["ports"]] == [False]
    api.delete(path).expect(200)
