"""Addresses and node ports of services: allocation, changes, and release."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import MERGE, Answer, Client
from tests.support.processes import Etcd, running_server

pytestmark = pytest.mark.rows("DEC-002")

SERVICES = "/api/v1/namespaces/default/services"
ROWS = [Case(row) for row in read(Path(__file__).with_name("service_addresses.yaml"))]
ONE_FAMILY = [Case(row) for row in read(Path(__file__).with_name("service_one_family.yaml"))]
ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
ANY = ((r"10\.(96|0\.0)(\.\d+)+", "V4"), (r"fd00:10:96::[0-9a-f]+", "V6"), (r"\b3[0-2]\d{3}\b", '"NP"'))


def read_addresses(answer: Answer) -> dict[str, Any]:
    """Return the addresses of a service in a response, in the form of the rows."""
    if answer.status not in (200, 201):
        return {"says": mask_allocated_values(answer.expect(422)["message"].split("is invalid: ", 1)[1])}
    spec = answer.json["spec"]
    found = {name: spec[name] for name in ADDRESSES if name in spec}
    numbers = [port.get("nodePort") for port in spec.get("ports", ())]
    if any(numbers):
        found["nodePorts"] = numbers
    return {"has": json.loads(mask_allocated_values(json.dumps(found)))}


def mask_allocated_values(text: str) -> str:
    for pattern, name in ANY:
        text = re.sub(pattern, name, text)
    return text


def expected_addresses(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("has", "says") if row.get(name) is not None}


@pytest.mark.rows("ERR-09", "WRI-014")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_services_get_addresses_and_node_ports(api: Client, case: Case) -> None:
    play_case(api, case)


def play_case(api: Client, case: Case) -> None:
    name = f"s-{secrets.token_hex(4)}"
    place = f"{SERVICES}/{name}"
    assert read_addresses(api.post(SERVICES, {"metadata": {"name": name}, "spec": case.spec})) == expected_addresses(
        case
    )
    for step in case.then or ():
        if "patch" in step:
            answer = api.patch(place, {"spec": step["patch"]}, MERGE)
        else:
            answer = api.put(place, {"metadata": {"name": name}, "spec": step["put"]})
        assert read_addresses(answer) == expected_addresses(step), step
    api.delete(place)


@pytest.fixture(scope="module")
def one_family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = [
        "--insecure",
        "--port=0",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-node-port-range=31000-31199",
    ]
    with running_server(flags, tmp_path_factory.mktemp("one-family")) as server:
        yield Client(server.url)


@pytest.mark.rows("ERR-09", "WRI-014")
@pytest.mark.parametrize("case", ONE_FAMILY, ids=case_name)
def test_single_ip_family_server_allocates_addresses(one_family: Client, case: Case) -> None:
    play_case(one_family, case)


@pytest.mark.rows("ERR-09", "WRI-014")
def test_addresses_in_use_are_not_allocated(api: Client) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80}], "ipFamilyPolicy": "RequireDualStack"}
    first, second = (f"s-{secrets.token_hex(4)}" for _ in range(2))
    had = api.post(SERVICES, {"metadata": {"name": first}, "spec": spec}).expect(201)["spec"]
    (v4, v6), port = had["clusterIPs"], had["ports"][0]["nodePort"]

    def refusal_of(asked: dict[str, Any]) -> str:
        body = {"metadata": {"name": second}, "spec": {"ports": [{"port": 80}], **asked}}
        (cause,) = api.post(SERVICES, body).expect(422)["details"]["causes"]
        return f"{cause['field']}: {cause['message']}"

    taken = "provided IP is already allocated"
    assert (
        refusal_of({"clusterIP": v4})
        == f'spec.clusterIPs: Invalid value: ["{v4}"]: failed to allocate IP {v4}: {taken}'
    )
    long = v6.replace("::", ":0::")
    said = refusal_of({"clusterIP": long})
    assert said == f'spec.clusterIPs: Invalid value: ["{long}"]: failed to allocate IP {long}: {taken}'
    taken = "provided port is already allocated"
    asked = {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}
    assert refusal_of(asked) == f"spec.ports[0].nodePort: Invalid value: {port}: {taken}"
    body = {"metadata": {"name": second}, "spec": {"type": "ExternalName", "externalName": "a.example.com"}}
    api.post(SERVICES, body).expect(201)  # it gets an address when its type changes
    change = {"spec": {"type": "ClusterIP", "externalName": None, "ports": [{"port": 80}], "clusterIP": v4}}
    assert api.patch(f"{SERVICES}/{second}", change, MERGE).status == 422
    api.delete(f"{SERVICES}/{first}").expect(200)
    assert api.patch(f"{SERVICES}/{second}", change, MERGE).expect(200)["spec"]["clusterIP"] == v4
    change = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}}
    assert api.patch(f"{SERVICES}/{second}", change, MERGE).expect(200)["spec"]["ports"][0]["nodePort"] == port
    again = api.patch(f"{SERVICES}/{second}", {"metadata": {"labels": {"a": "b"}}}, MERGE).expect(200)
    assert again["spec"]["ports"][0]["nodePort"] == port, "its own is not another's"
    api.delete(f"{SERVICES}/{second}").expect(200)


@pytest.mark.differs("the server's fault there: a 500")
@pytest.mark.rows("ERR-09")
def test_unavailable_health_check_node_port_is_refused(api: Client) -> None:
    port = 30_000 + secrets.randbelow(2_768)
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "nodePort": port}]}
    for wanted_port, why in (
        (port, "provided port is already allocated"),
        (29_999, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
    ):
        body = {"metadata": {"name": f"s-{secrets.token_hex(4)}"}, "spec": {**spec, "healthCheckNodePort": wanted_port}}
        (cause,) = api.post(SERVICES, body).expect(422)["details"]["causes"]
        assert cause["field"] == "spec.healthCheckNodePort"
        assert cause["message"] == f"Invalid value: {wanted_port}: {why}"


@pytest.mark.rows("ERR-09", "SSA-006")
def test_allocated_values_have_no_owner_and_survive_updates(api: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}}  # fmt: skip
    apply = {"Content-Type": "application/apply-patch+yaml"}
    made = api.request("PATCH", f"{SERVICES}/{name}", body, apply, fieldManager="me").expect(201)
    again = api.request("PATCH", f"{SERVICES}/{name}", body, apply, fieldManager="me").expect(200)
    assert again == made
    (owner,) = made["metadata"]["managedFields"]
    key = 'k:{"port":80,"protocol":"TCP"}'
    assert owner["fieldsV1"]["f:spec"] == {"f:ports": {key: {".": {}, "f:port": {}}}, "f:type": {}}
    replaced = api.put(f"{SERVICES}/{name}", {**body, "metadata": {"name": name, "labels": {"a": "b"}}}).expect(200)
    assert replaced["spec"] == made["spec"]
    api.delete(f"{SERVICES}/{name}").expect(200)


def test_ports_of_two_protocols_share_a_node_port(api: Client) -> None:
    name, wanted = f"s-{secrets.token_hex(4)}", 30_000 + secrets.randbelow(2_768)
    ports = [
        {"name": "a", "port": 80},
        {"name": "b", "port": 80, "protocol": "UDP", "nodePort": wanted},
        {"name": "c", "port": 81},
        {"name": "d", "port": 81, "protocol": "UDP"},
    ]
    made = api.post(SERVICES, {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}}).expect(201)
    a, b, c, d = (port["nodePort"] for port in made["spec"]["ports"])
    assert (a, b, d) == (wanted, wanted, c)
    assert c != wanted
    api.delete(f"{SERVICES}/{name}").expect(200)


@pytest.mark.rows("WRI-014")
def test_addresses_and_node_ports_are_allocated_once(tmp_path: Path, own_etcd: Etcd) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/svc-{secrets.token_hex(4)}"]
    given: list[str | int] = []
    with running_server(flags, tmp_path / "first") as server:
        api = Client(server.url)
        for start in (30_000, 31_000, 32_000):  # requests nearly all ports
            numbers = range(start, min(start + 1_000, 32_758))
            ports = [{"name": f"p{number}", "port": number, "nodePort": number} for number in numbers]
            api.post(SERVICES, {"metadata": {"name": f"s-{start}"}, "spec": {"type": "NodePort", "ports": ports}})
        given += create_five_services(api, "a")
    with running_server(flags, tmp_path / "second") as server:  # addresses allocated before the start stay allocated
        api = Client(server.url)
        given += create_five_services(api, "b")
        body = {"metadata": {"name": "more"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        full = api.post(SERVICES, body).expect(500)
        assert full["message"] == "Internal error occurred: failed to allocate a nodePort: range is full"
        freed = api.delete(f"{SERVICES}/b-0").expect(200)["spec"]["ports"][0]["nodePort"]
        assert api.post(SERVICES, body).expect(201)["spec"]["ports"][0]["nodePort"] == freed
    assert len(set(given)) == len(given) == 30
    assert all(number in range(32_758, 32_768) for number in given if isinstance(number, int))


def create_five_services(api: Client, name: str) -> list[str | int]:
    """Create five services, after a dry run of each; return their addresses and node ports."""
    found: list[str | int] = []
    for number in range(5):
        body = {"metadata": {"name": f"{name}-{number}"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        body["spec"] |= {"ipFamilyPolicy": "RequireDualStack"}
        assert api.post(f"{SERVICES}?dryRun=All", body).status == 201
        spec = api.post(SERVICES, body).expect(201)["spec"]
        found += [*spec["clusterIPs"], spec["ports"][0]["nodePort"]]
    return found


def test_table_and_field_selector_use_the_cluster_ip(api: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    made = api.post(SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}).expect(201)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    (row,) = api.get(f"{SERVICES}/{name}", {"Accept": table}).expect(200)["rows"]
    assert row["cells"][:5] == [name, "ClusterIP", made["spec"]["clusterIP"], "<none>", "80/TCP"]
    found = api.get(SERVICES, fieldSelector=f"spec.clusterIP={made['spec']['clusterIP']}").expect(200)["items"]
    assert [item["metadata"]["name"] for item in found] == [name]
    api.delete(f"{SERVICES}/{name}").expect(200)


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize(
    ("spec", "preview", "real"),
    [
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
            "",
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. "
            "The range of valid ports is 30000-32767",
        ),
        (
            {"clusterIP": "1.2.3.4", "ports": [{"port": 80}]},
            'spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is '
            "not in the valid range. The range of valid IPs is RANGE",
            'spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: '
            "the provided network does not match the current range",
        ),
    ],
    ids=["port", "address"],
)
def test_dry_run_reports_other_range_errors(api: Client, spec: dict[str, Any], preview: str, real: str) -> None:
    body = {"metadata": {"name": f"s-{secrets.token_hex(4)}"}, "spec": spec}
    dry = api.post(SERVICES, body, dryRun="All")
    if preview:
        text = re.sub(r"\d+\.\d+\.\d+\.\d+/\d+", "RANGE", dry.expect(422)["message"])
        assert text.split("is invalid: ", 1)[1] == preview
    else:
        assert dry.expect(201)["spec"]["ports"][0]["nodePort"] == 80
    assert api.post(SERVICES, body).expect(422)["message"].split("is invalid: ", 1)[1] == real
